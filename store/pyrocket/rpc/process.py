"""A broker as a process: it opens its store, listens, and stops cleanly on SIGTERM and SIGINT."""

import asyncio
import logging
import os
import signal
import time
from contextlib import suppress

from pyrocket.broker.broker import Broker
from pyrocket.broker.settings import Settings
from pyrocket.disk.layout import Layout
from pyrocket.errors import OptionError, StoreLockedError
from pyrocket.metadata.broker_file import BrokerFile, RunningBroker
from pyrocket.rpc.server import Server
from pyrocket.store import Store

_log = logging.getLogger(__name__)

_POLL_S = 0.2
PLAIN = "plain://"


def open_store(directory: str, settings: Settings) -> Store:
    """Open the store for this process alone; waits for other writers as long as is set.

    Raises StoreLockedError (STORE_IN_USE), and what `Store.open` raises.
    """
    end = time.monotonic() + settings.wait
    while True:
        with suppress(StoreLockedError):
            return _open(directory, settings)
        if time.monotonic() + _POLL_S > end:
            return _open(directory, settings)
        time.sleep(_POLL_S)


def _open(directory: str, settings: Settings) -> Store:
    return Store.open(directory, create=True, config=settings.store_config())


def serve(directory: str, settings: Settings) -> None:
    """Serve the store until SIGTERM or SIGINT. Raises before anything is served."""
    store = open_store(directory, settings)
    try:
        broker = Broker(store)
    except BaseException:
        store.close()
        raise
    try:
        asyncio.run(_serve(broker, BrokerFile(Layout(store.path)), settings))
    finally:
        broker.close()
        _log.info("the store is closed")


async def _serve(broker: Broker, note: BrokerFile, settings: Settings) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = Server(broker)
    listens = [_listen(server, address) for address in settings.listen]
    await server.start()
    note.write(RunningBroker(os.getpid(), listens))
    try:
        _log.info("serving %s at %s", broker.path, ", ".join(listens))
        await stopping.wait()
        _log.info("stopping: calls have %g s to end", settings.drain)
    finally:
        await server.stop(settings.drain)
        note.delete()


def _listen(server: Server, address: str) -> str:
    plain = address.removeprefix(PLAIN)
    host = plain.rpartition(":")[0]
    try:
        port = server.listen(plain)
    except RuntimeError:
        raise OptionError(
            f"the address {plain} cannot be used: the port is in use, or the host is not one of"
            " this machine.",
            remedy="Choose another --listen, or stop the process that uses the port.",
            code="BROKER_ADDRESS",
        ) from None
    return f"{host}:{port}"
