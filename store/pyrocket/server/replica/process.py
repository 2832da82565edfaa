"""Runs the process of a replica: follows the primary, listens, and stops cleanly on SIGTERM."""

import logging
import socket
from functools import partial

from pyrocket.base.arguments import parse_address
from pyrocket.base.clock import system_clock
from pyrocket.broker.settings import PLAIN, Settings
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.follower import Follower
from pyrocket.formats.checksum import crc32
from pyrocket.metadata.identity import layout_of
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.server.process import Process, waiting_for_store
from pyrocket.server.replica.broker import ReplicaBroker
from pyrocket.server.replica.link import TIMEOUTS, PrimaryLink
from pyrocket.server.replica.server import ReplicaServer, itself
from pyrocket.services.services import recovery_hooks
from pyrocket.store import Store

_MAX_ID = 2**31 - 1
"""The largest id of a broker at name servers: there, the id of a replica is a number."""

_log = logging.getLogger(__name__)


def serve(directory: str, settings: Settings) -> bool:
    """Follow the primary and serve reads until SIGTERM or SIGINT; return True.

    Raises the errors of a replica that cannot be started: see `PrimaryLink.start`.
    """
    process, link = Process(settings), _link(layout_of(directory), settings)
    try:
        waiting_for_store(settings.wait, link.start)
        with Store.open(directory, read_only=True) as store:
            _log.info("%s is a replica of %s", store.path, settings.replica_of)
            broker_id = crc32(link.role.replica.encode()) % _MAX_ID + 1
            broker = ReplicaBroker(store, link, settings.request_bytes)
            process.run(broker, ReplicaServer, broker_id)
    finally:
        link.stop()
    _log.info("the replica is closed")
    return True


def _link(layout: Layout, settings: Settings) -> PrimaryLink:
    """Raises OptionError, InvalidInputError (REPLICA_OF_ITSELF)."""
    primary = settings.replica_of
    parse_address(primary)
    if primary in {a.removeprefix(PLAIN) for a in (*settings.listen, settings.advertise)}:
        raise itself()
    client = Client(Connection(primary, settings.credentials("replica")), TIMEOUTS)
    name = f"{socket.gethostname()}:{layout.root.resolve()}"
    config, hooks = settings.store_config(), recovery_hooks(layout, system_clock)
    opens = partial(Follower, layout, config, system_clock, hooks)
    return PrimaryLink(client, layout, primary, name, opens)
