"""Registers a broker with name servers: at its start, when its topics change, and every 30 s."""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue

import grpc

from pyrocket.base.credentials import Credentials
from pyrocket.base.rounds import Rounds
from pyrocket.disk.layout import Layout
from pyrocket.errors import TransportError
from pyrocket.metadata.role import RoleFile
from pyrocket.store import Store, call_on_change
from pyrocket.values.routes import PRIMARY, Registration, TopicData
from pyrocket.wire.channel import NAME_SERVER, method_of, open_channel
from pyrocket.wire.errors import call_error, unanswered
from pyrocket.wire.messages import fill
from pyrocket.wire.tls_errors import date_remedy

PERIOD_S = 30
_RETRY_S, _ANSWER_S, _UNREGISTER_S = 1, 5, 2
_log = logging.getLogger(__name__)


class RegisteredTopics:
    """The registration of a broker, which changes with the topics of its store."""

    def __init__(self, store: Store, cluster: str, address: str, broker_id: int = PRIMARY) -> None:
        self._store, self._lock = store, threading.Lock()
        term = RoleFile(Layout(store.path)).read().term
        self._last = Registration(
            cluster, store.broker_name, broker_id, address, 0, (), store.uuid, term
        )

    def current(self) -> Registration:
        """Return the registration, with a new data version if the topics have changed."""
        with self._lock:
            topics = self._topics()
            if self._last.data_version == 0 or self._last.topics != topics:
                version = max(self._last.data_version + 1, self._store.now())
                self._last = replace(self._last, data_version=version, topics=topics)
            return self._last

    def _topics(self) -> tuple[TopicData, ...]:
        topics = self._store.topics
        return tuple(
            TopicData(**{**vars(topic), "topic_id": ""}, message_type=topics.message_type(name))
            for name, topic in topics.all().items()
        )


class Registrar:
    """Keeps a broker registered with some name servers, from `start` to `stop`."""

    def __init__(
        self,
        store: Store,
        topics: RegisteredTopics,
        addresses: Sequence[str],
        credentials: Credentials,
    ) -> None:
        self._store, self._structure = store, -1
        self._streams = [_Stream(address, credentials, topics) for address in addresses]
        if addresses:
            call_on_change(store, self._changed)

    def start(self) -> None:
        """Register with all name servers; one that cannot be reached is retried later.

        Raises the error of a name server that refuses the broker, such as BROKER_NAME_TAKEN.
        """
        for stream in self._streams:
            stream.start()
        for stream in self._streams:
            with suppress(FutureTimeoutError, TransportError):
                stream.first.result(_ANSWER_S)

    @property
    def trouble(self) -> str:
        """The reason why the broker may be missing in a route; empty if no thread has ended."""
        ended = [thread.name for thread in self._streams if thread.ident and not thread.is_alive()]
        return ", ".join(f"the thread {name} has ended" for name in ended)

    def stop(self) -> None:
        """Unregister from all name servers."""
        for stream in self._streams:
            stream.stop()
        for stream in self._streams:
            stream.end()

    def _changed(self) -> None:
        """Wake all streams if the topics may have changed."""
        structure = self._store.position().structure
        if structure != self._structure:
            self._structure = structure
            for stream in self._streams:
                stream.wake.set()


class _Stream(threading.Thread):
    """The stream to one name server, which is opened again after a failure."""

    def __init__(self, address: str, credentials: Credentials, topics: RegisteredTopics) -> None:
        super().__init__(name=f"pyrocket-register-{address}", daemon=True)
        self._address, self._credentials, self._topics = address, credentials, topics
        self._stopping, self._call, self._rounds = False, None, Rounds()
        self.first: Future[None] = Future()
        self.wake = threading.Event()

    def stop(self) -> None:
        self._stopping = True
        self.wake.set()

    def end(self) -> None:
        """Wait until the broker is unregistered; give up soon if the name server hangs."""
        self.join(_UNREGISTER_S)
        if self._call is not None:
            self._call.cancel()

    def run(self) -> None:
        while not self._stopping:
            if not self._rounds.run("registering failed", self._attempt):
                self.wake.clear()
                if not self._stopping:
                    self.wake.wait(_RETRY_S)

    def _attempt(self) -> None:
        try:
            self._register_until_stopped()
        except Exception as error:
            failure = self._described(error)
            if not self.first.done():
                self.first.set_exception(failure)
            if not self._stopping:
                raise failure from None

    def _described(self, error: Exception) -> Exception:
        if not isinstance(error, grpc.RpcError):
            return error
        dates = date_remedy(error, self._address, self._credentials.ca)
        return call_error(self._address, "Register", error, dates)

    def _register_until_stopped(self) -> None:
        """Register at intervals. Raises grpc.RpcError, PyrocketError."""
        method, request, _ = method_of("Register", NAME_SERVER)
        sent: SimpleQueue[bytes | None] = SimpleQueue()
        channel = open_channel(self._credentials, self._address)
        try:
            metadata = self._credentials.metadata()
            self._call = call = channel.stream_stream(method)(
                iter(sent.get, None), metadata=metadata
            )
            call.add_callback(self.wake.set)
            while not self._stopping:
                self.wake.clear()
                if self._stopping:  # `stop` may have set the event just before.
                    break
                current = fill(request(), {"registration": self._topics.current()})
                sent.put(current.SerializeToString())
                if next(call, None) is None:
                    raise unanswered(self._address, "Register", "it has ended the stream")
                self._registered()
                self.wake.wait(PERIOD_S)
            sent.put(None)
            next(call, None)  # Returns when the broker is unregistered.
        finally:
            sent.put(None)
            channel.close()

    def _registered(self) -> None:
        if self._rounds.trouble or not self.first.done():
            _log.info("registered with the name server at %s", self._address)
        self._rounds.succeeded("registering failed")
        if not self.first.done():
            self.first.set_result(None)
