"""Runs the process of a replica: follows the primary, listens, and stops cleanly on SIGTERM."""

import logging
import socket
from functools import partial

from pyrocket.base.arguments import parse_address
from pyrocket.base.clock import system_clock
from pyrocket.base.credentials import Credentials, read_credentials
from pyrocket.broker.files import refuse_if_others_can_read
from pyrocket.broker.settings import CODE, PLAIN, Settings
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.follower import Follower
from pyrocket.formats.checksum import crc32
from pyrocket.metadata.identity import layout_of
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.server.call_server import LoopWatch
from pyrocket.server.gate import Gate
from pyrocket.server.nameserver.registration import RegisteredTopics, Registrar
from pyrocket.server.process import (
    Running,
    access_of,
    certificate_of,
    check_exposure,
    check_name_servers,
    listen_at,
    run_loop,
    waiting_for_store,
)
from pyrocket.server.replica.broker import ReplicaBroker
from pyrocket.server.replica.link import TIMEOUTS, PrimaryLink
from pyrocket.server.replica.server import ReplicaServer, itself
from pyrocket.server.tls import Certificate
from pyrocket.services.services import recovery_hooks
from pyrocket.store import Store

_MAX_ID = 2**31 - 1
"""The largest id of a broker at name servers: there, the id of a replica is a number."""

_log = logging.getLogger(__name__)


def serve(directory: str, settings: Settings) -> bool:
    """Follow the primary and serve reads until SIGTERM or SIGINT; return True.

    Raises the errors of a replica that cannot be started: see `PrimaryLink.start`.
    """
    check_exposure(settings)
    at_name_servers = check_name_servers(settings)
    access, certificate = access_of(settings), certificate_of(settings)
    layout = layout_of(directory)
    link = _link(layout, settings)
    try:
        waiting_for_store(settings.wait, link.start)
        with Store.open(directory, read_only=True) as store:
            broker = ReplicaBroker(store, link, settings.request_bytes)
            gate = Gate(access, lambda: broker.source.topics())
            run_loop(partial(_serve, broker, gate, certificate, at_name_servers, settings))
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
    credentials: Credentials,
    settings: Settings,
    watch: LoopWatch,
) -> None:
    server = ReplicaServer(broker, gate, settings)
    listens = [listen_at(server, address, certificate) for address in settings.listen]
    address = settings.advertise or next(iter(listens), "")
    broker_id = crc32(broker.link.role.replica.encode()) % _MAX_ID + 1
    topics = RegisteredTopics(broker.store, settings.cluster_name, address, broker_id)
    registrar = Registrar(broker.store, topics, settings.nameserver, credentials)
    _log.info("%s is a replica of %s", broker.path, broker.link.role.primary)
    running = Running(broker, server, registrar, listens, certificate, settings)
    await running.until_stopped(watch)
