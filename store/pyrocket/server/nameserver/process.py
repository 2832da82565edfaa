"""Runs a name server process: listens, and stops cleanly on SIGTERM and SIGINT."""

import logging
from functools import partial

from pyrocket.broker.settings import Settings
from pyrocket.server.call_server import LoopWatch
from pyrocket.server.gate import Gate
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.server.nameserver.server import NameServer
from pyrocket.server.process import (
    access_of,
    certificate_of,
    check_exposure,
    listen_at,
    logging_expiry,
    run_loop,
    stop_signal,
)
from pyrocket.server.tls import Certificate

_log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises OptionError before anything is served."""
    check_exposure(settings)
    gate = Gate(access_of(settings))
    run_loop(partial(_serve, gate, certificate_of(settings), settings))


async def _serve(
    gate: Gate, certificate: Certificate | None, settings: Settings, watch: LoopWatch
) -> None:
    stopping = stop_signal()
    server = NameServer(RouteTable(), gate, settings)
    listens = [listen_at(server, address, certificate) for address in settings.listen]
    await server.start()
    _log.info("serving routes at %s", ", ".join(listens))
    if not settings.users:
        _log.warning("no users are configured: every client can register brokers")
    try:
        with logging_expiry(certificate):
            await stopping.wait()
        _log.info("stopping")
    finally:
        await server.stop(settings.drain)
