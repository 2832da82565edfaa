"""Runs a broker process: opens the store, listens, and stops cleanly on SIGTERM and SIGINT."""

import asyncio
import gc
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from pyrocket.base.arguments import check_advertised, parse_address
from pyrocket.base.credentials import Credentials
from pyrocket.broker.access import Access, SignatureAge, watch_access
from pyrocket.broker.broker import Broker, running_state
from pyrocket.broker.settings import PLAIN, Settings, is_loopback
from pyrocket.disk.layout import Layout
from pyrocket.errors import OptionError, StoreLockedError
from pyrocket.metadata.broker_file import BrokerFile, RunningBroker
from pyrocket.server.call_server import CallServer, LoopWatch
from pyrocket.server.gate import Gate
from pyrocket.server.nameserver.registration import RegisteredTopics, Registrar
from pyrocket.server.server import Server
from pyrocket.server.tls import Certificate
from pyrocket.store import Store
from pyrocket.values.routes import PRIMARY

_log = logging.getLogger(__name__)

_POLL_S = 0.2
_Opened = TypeVar("_Opened")


def open_store(directory: str, settings: Settings) -> Store:
    """Open the store exclusively; wait up to `settings.wait` seconds for other writers.

    Raises StoreLockedError (STORE_IN_USE), and the errors of `Store.open`.
    """
    config = settings.store_config()
    return waiting_for_store(
        settings.wait, lambda: Store.open(directory, create=True, config=config)
    )


def waiting_for_store(seconds: float, open_it: Callable[[], _Opened]) -> _Opened:
    """Open a store, and repeat it for some seconds while another process writes to it."""
    end = time.monotonic() + seconds
    while True:
        try:
            return open_it()
        except StoreLockedError:
            if time.monotonic() + _POLL_S > end:
                raise
        time.sleep(_POLL_S)


def serve(directory: str, settings: Settings) -> bool:
    """Serve the store until SIGTERM or SIGINT; return False if a write or an fsync has failed.

    Raises OptionError for invalid settings, before anything is served.
    """
    process = Process(settings)
    if settings.ignored:
        _log.warning("keys of broker.conf without effect: %s", ", ".join(settings.ignored))
    store = open_store(directory, settings)
    try:
        broker = Broker(
            store,
            staging_percent=settings.staging_percent,
            max_request_bytes=settings.request_bytes,
            checks=settings.check_policy(),
            trace_topic=settings.trace_topic if settings.trace else "",
            auto_create_groups=settings.creates_groups,
            sync_timeout_s=settings.replica_timeout,
        )
    except BaseException:
        store.close()
        raise
    try:
        process.run(broker, Server)
    finally:
        broker.close()
    failed = running_state(store.path, is_disk_full=False).write_error
    _log.info("the store is closed%s", ", and is recovered when it is opened" if failed else "")
    return not failed


def access_of(settings: Settings) -> Callable[[], Access] | None:
    """Return a function that returns the current users and rights; None without users."""
    if not settings.users:
        return None
    return watch_access(settings.users, SignatureAge(settings.signature_age)).current


def run_loop(main: Callable[[LoopWatch], Coroutine[Any, Any, None]]) -> None:
    """Run `main` in an event loop whose callbacks are watched."""
    # Exclude the objects created so far from garbage collection: scanning them would block the
    # event loop.
    gc.collect()
    gc.freeze()
    watch = LoopWatch()
    loop = asyncio.SelectorEventLoop(watch)
    try:
        loop.run_until_complete(main(watch))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


class Process:
    """A broker, or a replica, in its process."""

    def __init__(self, settings: Settings) -> None:
        """Check the settings, before a store is opened. Raises OptionError."""
        check_exposure(settings)
        self._settings, self._credentials = settings, _name_server_credentials(settings)
        self._access, self._certificate = access_of(settings), certificate_of(settings)

    def run(self, broker: Any, server: Callable[..., Any], broker_id: int = PRIMARY) -> None:
        """Serve until SIGTERM or SIGINT; `server` is called with broker, rights and settings."""
        gate = Gate(self._access, lambda: broker.source.topics())
        run_loop(partial(self._serve, broker, partial(server, broker, gate), broker_id))

    async def _serve(
        self, broker: Any, create: Callable[..., Any], broker_id: int, watch: LoopWatch
    ) -> None:
        settings, server = self._settings, create(self._settings)
        listens = [listen_at(server, address, self._certificate) for address in settings.listen]
        address = settings.advertise or next(iter(listens), "")
        server.advertise(address, listens)
        topics = RegisteredTopics(broker.store, settings.cluster_name, address, broker_id)
        registrar = Registrar(broker.store, topics, settings.nameserver, self._credentials)

        def trouble() -> str:
            """Return the reason why the broker is not ready; empty if it is ready."""
            if server.is_stopping:
                return "stopping"
            return ", ".join(filter(None, (broker.trouble, registrar.trouble)))

        stopping, broker_file = stop_signal(), BrokerFile(Layout(broker.path))
        monitor = self._monitoring(broker, server, watch, trouble)
        with logging_expiry(self._certificate), monitor as metrics:
            await server.start()
            # In a thread, because it waits for the disk.
            running = RunningBroker(os.getpid(), listens, metrics)
            await asyncio.to_thread(write_broker_file, broker_file, running)
            try:
                await asyncio.to_thread(registrar.start)
                _log.info("serving %s at %s", broker.path, ", ".join(listens))
                if not settings.users:
                    _log.warning("no users are configured: every client has all rights")
                await stopping.wait()
                _log.info("stopping: running calls have %g s to complete", settings.drain)
            finally:
                await asyncio.to_thread(registrar.stop)
                await server.stop(settings.drain)
                await asyncio.to_thread(broker_file.delete)

    @contextmanager
    def _monitoring(
        self, broker: Any, server: Any, watch: LoopWatch, trouble: Callable[[], str]
    ) -> Iterator[str]:
        """Serve /metrics and /health; yield their address, or an empty string."""
        address = self._settings.metrics
        if not address:
            yield ""
            return
        from pyrocket.server.monitoring import Metrics, MonitoringServer

        metrics = Metrics(broker, server, watch, self._settings.cluster_name, self._certificate)
        host, _, port = address.rpartition(":")
        try:
            monitor = MonitoringServer(host.strip("[]"), int(port), metrics, trouble)
        except (OSError, ValueError, OverflowError):
            raise _unusable(address, "--metrics") from None
        try:
            yield f"{host}:{monitor.port}"
        finally:
            monitor.close()


def write_broker_file(file: BrokerFile, running: RunningBroker) -> None:
    """Record a broker for commands on this machine."""
    try:
        file.write(running)
    except OSError as error:  # A broker can be started on a full disk.
        _log.warning("commands on this machine do not find the broker: %s", error)


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


@contextmanager
def logging_expiry(certificate: Certificate | None) -> Iterator[None]:
    """Log the expiry of the certificate, if there is one: now, and during a `with` block."""
    if certificate is None:
        yield
        return
    certificate.log_if_it_expires()
    task = asyncio.ensure_future(certificate.log_expiry())
    try:
        yield
    finally:
        task.cancel()


def _name_server_credentials(settings: Settings) -> Credentials:
    """Return the broker's credentials at name servers.

    Raises OptionError (ADDRESS_INVALID, ADVERTISE_UNSPECIFIED, BROKER_SETTING).
    """
    for address in settings.nameserver:
        parse_address(address)
    if settings.nameserver or settings.advertise:
        first = next(iter(settings.listen), "").removeprefix(PLAIN)
        # The port may be 0.
        check_advertised(settings.advertise or f"{first.rpartition(':')[0]}:1")
    return settings.credentials("nameserver")


def check_exposure(settings: Settings) -> None:
    """Reject addresses that other machines can reach, unless there are users and TLS.

    /metrics has neither, so that its address needs `insecure`.
    """
    if settings.metrics and not settings.insecure and not is_loopback(settings.metrics):
        raise OptionError(
            f"the address {settings.metrics} of /metrics can be reached from other machines, and"
            " needs no credentials.",
            remedy="Use --metrics 127.0.0.1:PORT, or --insecure.",
            code="BROKER_EXPOSED",
        )
    if settings.insecure or (settings.users and settings.tls_certificate):
        reachable = [] if settings.insecure else [a for a in settings.listen if PLAIN in a]
    else:
        reachable = [*settings.listen]
    for address in reachable:
        if not is_loopback(address):
            raise OptionError(
                f"the address {address} can be reached from other machines.",
                remedy="Use --users, --tls-certificate and --tls-key, or --insecure.",
                code="BROKER_EXPOSED",
            )


def certificate_of(settings: Settings) -> Certificate | None:
    """Return the certificate of the settings, or None. Raises OptionError (BROKER_CERTIFICATE)."""
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise OptionError(
            "a certificate and its key must be given together.",
            remedy="Use both --tls-certificate and --tls-key.",
            code="BROKER_CERTIFICATE",
        )
    if not settings.tls_certificate:
        return None
    return Certificate(settings.tls_certificate, settings.tls_key)


def listen_at(server: CallServer, address: str, certificate: Certificate | None) -> str:
    """Open a port; return its address. Raises OptionError (BROKER_ADDRESS)."""
    bare = address.removeprefix(PLAIN)
    credentials = certificate.credentials() if certificate and bare == address else None
    try:
        port = server.listen(bare, credentials)
    except RuntimeError:
        raise _unusable(bare, "--listen") from None
    return f"{bare.rpartition(':')[0]}:{port}"


def _unusable(address: str, flag: str) -> OptionError:
    """Return the error for an address that the process cannot listen at."""
    return OptionError(
        f"the address {address} cannot be used: the port is in use, or the host is not an address"
        " of this machine.",
        remedy=f"Choose another {flag}, or stop the process that uses the port.",
        code="BROKER_ADDRESS",
    )
