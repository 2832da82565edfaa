"""Runs the process of a replica: follows the primary, listens, and stops cleanly on SIGTERM."""

import asyncio
import logging
import os
import socket
from functools import partial
from typing import Any, cast

from pyrocket.base.arguments import parse_address
from pyrocket.base.clock import system_clock
from pyrocket.base.credentials import read_credentials
from pyrocket.broker.broker import Broker
from pyrocket.broker.files import refuse_if_others_can_read
from pyrocket.broker.settings import CODE, PLAIN, Settings
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.follower import Follower
from pyrocket.errors import OptionError
from pyrocket.metadata.broker_file import BrokerFile, RunningBroker
from pyrocket.metadata.identity import layout_of
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.server.call_server import LoopWatch
from pyrocket.server.gate import Gate
from pyrocket.server.process import (
    access_of,
    certificate_of,
    check_exposure,
    listen_at,
    logging_expiry,
    monitoring,
    run_loop,
    stop_signal,
    waiting_for_store,
    write_broker_file,
)
from pyrocket.server.replica.broker import ReplicaBroker
from pyrocket.server.replica.link import TIMEOUTS, PrimaryLink
from pyrocket.server.replica.server import ReplicaServer, itself
from pyrocket.server.server import Server
from pyrocket.server.tls import Certificate
from pyrocket.services.services import recovery_hooks
from pyrocket.store import Store

_log = logging.getLogger(__name__)


def serve(directory: str, settings: Settings) -> bool:
    """Follow the primary and serve reads until SIGTERM or SIGINT; return True.

    Raises the errors of a replica that cannot be started: see `PrimaryLink.start`.
    """
    check_exposure(settings)
    access, certificate = access_of(settings), certificate_of(settings)
    layout = layout_of(directory)
    link = _link(layout, settings)
    try:
        waiting_for_store(settings.wait, link.start)
        with Store.open(directory, read_only=True) as store:
            broker = ReplicaBroker(store, link, settings.request_bytes)
            gate = Gate(access, lambda: broker.source.topics())
            run_loop(partial(_serve, broker, gate, certificate, settings))
    finally:
        link.stop()
    _log.info("the replica is closed")
    return True


def _client(settings: Settings) -> Client:
    """Return a client of the primary. Raises OptionError, InvalidInputError (REPLICA_OF_ITSELF)."""
    parse_address(settings.replica_of)
    own = {address.removeprefix(PLAIN) for address in (*settings.listen, settings.advertise)}
    if settings.replica_of in own:
        raise itself()
    if settings.nameserver:
        raise OptionError(
            "a replica does not register with name servers.",
            remedy="Omit --nameserver; clients that read use its address as `endpoint`.",
            code=CODE,
        )
    if settings.replica_secret_key_file:
        refuse_if_others_can_read(settings.replica_secret_key_file, code=CODE)
    credentials = read_credentials(
        tls=bool(settings.replica_ca),
        ca=settings.replica_ca,
        access_key=settings.replica_access_key,
        secret_key="",
        secret_key_file=settings.replica_secret_key_file,
        names=("--replica-ca", "--replica-secret-key-file"),
    )
    return Client(Connection(settings.replica_of, credentials), TIMEOUTS)


def _link(layout: Layout, settings: Settings) -> PrimaryLink:
    name = f"{socket.gethostname()}:{layout.root.resolve()}"
    config, hooks = settings.store_config(), recovery_hooks(layout, system_clock)
    opens = partial(Follower, layout, config, system_clock, hooks)
    return PrimaryLink(_client(settings), layout, settings.replica_of, name, opens)


async def _serve(
    broker: ReplicaBroker,
    gate: Gate,
    certificate: Certificate | None,
    settings: Settings,
    watch: LoopWatch,
) -> None:
    stopping = stop_signal()
    server, broker_file = ReplicaServer(broker, gate, settings), BrokerFile(Layout(broker.path))
    listens = [listen_at(server, address, certificate) for address in settings.listen]

    def trouble() -> str:
        return "stopping" if server.is_stopping else broker.trouble

    # The metrics use only what both kinds of brokers have.
    served = cast(Broker, broker), cast(Server, server)
    with (
        logging_expiry(certificate),
        monitoring(*served, watch, settings, certificate, trouble) as metrics,
    ):
        await server.start()
        running: Any = RunningBroker(os.getpid(), listens, metrics)
        await asyncio.to_thread(write_broker_file, broker_file, running)
        try:
            primary = broker.link.role.primary
            _log.info("serving %s, a replica of %s, at %s", broker.path, primary, listens)
            await stopping.wait()
            _log.info("stopping")
        finally:
            await server.stop(settings.drain)
            await asyncio.to_thread(broker_file.delete)
