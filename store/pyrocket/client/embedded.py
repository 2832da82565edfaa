"""`InProcessInvoker`: makes the calls of producers and consumers to a store in the same process.

All clients of a process that use one store share one broker library, which delivers delayed
messages and retries, and checks transactions.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import UnionType
from typing import Any, TypeVar, cast

from pyrocket.base.loop_threads import LoopThreads, PendingReply
from pyrocket.broker.broker import Broker
from pyrocket.broker.client_calls import ClientCalls
from pyrocket.client.transport import ClientTransport, OnNotification, no_topic, pulled
from pyrocket.store import Store, consumption_of
from pyrocket.values.admin import TopicConfig
from pyrocket.values.consuming import Pull, Pulled, PullStatus
from pyrocket.values.message import MessageQueue
from pyrocket.values.routes import TopicSettings
from pyrocket.values.transactions import Undecided

_BLOCKING_CALLS = 8
"""Maximum number of threads for calls, which may wait for the disk."""

_LOOK_S = 0.01
"""While pulls wait: interval of the checks whether the store has changed."""

_T = TypeVar("_T")


class OpenBrokers:
    """The broker libraries of this process, each shared by all clients of one store."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Remove all stores: a forked child does not have their threads."""
        self._lock, self._open = threading.Lock(), dict[str, tuple[Broker, int]]()

    def acquire(self, path: str, *, create: bool) -> Broker:
        """Return the broker library of a store, which is opened if no client uses it."""
        with self._lock:
            broker, users = self._open.get(path) or (_opened(path, create=create), 0)
            self._open[path] = broker, users + 1
            return broker

    def release(self, path: str) -> None:
        """Close the store if no other client uses it."""
        with self._lock:
            broker, users = self._open.pop(path)
            if users > 1:
                self._open[path] = broker, users - 1
            else:
                broker.close()


def _opened(path: str, *, create: bool) -> Broker:
    store = Store.open(path, create=create)
    try:
        return Broker(store, holds_groups=True)
    except BaseException:
        store.close()
        raise


open_brokers = OpenBrokers()
os.register_at_fork(after_in_child=open_brokers.forget)


class InProcessInvoker:
    """The `Invoker` of one instance. Calls run in threads of its event loop."""

    def __init__(self, path: str, broker: Broker) -> None:
        """Use a broker library, which `close` releases. Clients call `connect`."""
        self._path, self._broker, store = path, broker, broker.store
        self._answers: dict[str, Callable[..., Any]] = {
            "Topics": lambda: [*broker.source.topics().values()],
            "Bounds": broker.source.bounds,
            "OffsetsAt": broker.source.offsets_at,
        }
        self._clients = ClientCalls(broker)
        for answers in self._clients.table().values():
            self._answers |= answers
        self._threads = LoopThreads(_BLOCKING_CALLS, "pyrocket-client-call")
        self._store, self._storage, self._arrivals = store, consumption_of(store), _Arrivals(store)

    async def invoke(
        self, broker: str, call: str, reply: type[_T] | UnionType, /, **arguments: Any
    ) -> _T:
        return cast(_T, await self._threads.run(partial(_answer, self._answers[call], arguments)))

    async def pull(self, request: Pull) -> Pulled:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.hold_ms / 1000
        look = partial(self._answers["PullQueue"], **vars(request))
        while (raw := await self._threads.run(look)).status is PullStatus.NO_NEW_MSG:
            left = deadline - loop.time()
            if left <= 0:
                break
            await self._arrivals.wait(request.queue, request.offset, left)
        return pulled(raw)

    async def brokers(self) -> Sequence[str]:
        return [self._store.broker_name]

    async def topics(self, topic: str) -> TopicSettings:
        config = await self._threads.run(partial(self._storage.topic, topic))
        if config is None:
            raise no_topic(topic)
        return TopicSettings({self._store.broker_name: config}, {})

    async def create(self, topic: str) -> Mapping[str, TopicConfig]:
        config = self._store.config
        if not config.auto_create_topics:
            raise no_topic(topic)
        queues = config.default_queues
        return {self._store.broker_name: TopicConfig(topic, queues, queues)}

    def watch(
        self,
        received: OnNotification,
        *,
        group: str = "",
        client_id: str = "",
        producer_group: str = "",
    ) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def notify(undecided: Undecided | None) -> bool:
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(received, undecided)
            return True

        if producer_group:
            self._broker.transactions.ask_through()
        return self._clients.watch(notify, group, producer_group)

    async def close(self) -> None:
        """Release the broker library."""
        await asyncio.to_thread(open_brokers.release, self._path)
        self._threads.shutdown(wait=False)


async def connect(path: str, *, create: bool = False) -> ClientTransport:
    """Open the store at an absolute path. Raises the errors of `Store.open`."""
    path = os.path.realpath(path)
    broker = await asyncio.to_thread(open_brokers.acquire, path, create=create)
    return ClientTransport(InProcessInvoker(path, broker))


def _answer(answer: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    reply = answer(**arguments)
    return PendingReply(reply, lambda value: value) if isinstance(reply, Future) else reply


@dataclass(eq=False)
class _Waiting:
    queue: MessageQueue
    offset: int
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class _Arrivals:
    """The pulls of one event loop that wait for messages, which any process may append."""

    def __init__(self, store: Store) -> None:
        self._store, self._storage = store, consumption_of(store)
        self._waiting: set[_Waiting] = set()
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, queue: MessageQueue, offset: int, seconds: float) -> None:
        """Return when a queue has a message at this offset or a later one, or after the time."""
        pull = _Waiting(queue, offset)
        self._waiting.add(pull)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        # Before Python 3.12, `asyncio.wait_for` may ignore a cancellation.
        timer = asyncio.get_running_loop().call_later(seconds, pull.arrived.set)
        try:
            await pull.arrived.wait()
        finally:
            timer.cancel()
            self._waiting.discard(pull)

    async def _look(self) -> None:
        """Wake the pulls whose messages have arrived, as long as any pull waits."""
        seen, known = None, set[_Waiting]()
        while self._waiting:
            now = self._store.position()
            if now != seen or not self._waiting <= known:
                seen, known = now, {*self._waiting}
                try:
                    arrived = await asyncio.to_thread(self._arrived, known)
                except Exception:  # The pulls meet the error again, and report it.
                    arrived = [*known]
                for pull in arrived:
                    pull.arrived.set()
            await asyncio.sleep(_LOOK_S)

    def _arrived(self, waiting: set[_Waiting]) -> list[_Waiting]:
        bounds = self._storage.bounds
        return [
            pull
            for pull in waiting
            if bounds(pull.queue.topic, pull.queue.queue_id).maximum > pull.offset
        ]
