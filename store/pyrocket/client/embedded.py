"""`EmbeddedTransport`: the calls of producers and consumers to a store in the same process.

All clients of a process that use one store share one broker library, which delivers delayed
messages and retries, and checks transactions.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyrocket.base.loop_threads import LoopThreads
from pyrocket.broker.broker import Broker
from pyrocket.client.arrivals import Arrivals
from pyrocket.client.transport import Changed, TopicRoute
from pyrocket.disk.io import make_directory, open_file, read_or_none, write_at
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock
from pyrocket.errors import PyrocketError, StoreLockedError, TopicNotFoundError
from pyrocket.formats.record_decode import messages_of
from pyrocket.metadata.topics import check_topic_name, similar_to
from pyrocket.services.transactions.half_messages import CheckRequest
from pyrocket.store import Store, consumption_of
from pyrocket.values.consuming import (
    Committed,
    GroupStart,
    GroupStarts,
    Heartbeat,
    Pull,
    Pulled,
    PullStatus,
    Subscription,
)
from pyrocket.values.message import MessageQueue, OutgoingMessage, QueueOffsets, SendResult
from pyrocket.values.topics import TopicConfig
from pyrocket.values.transactions import LocalTransactionState, Undecided

_BLOCKING_CALLS = 8
"""Maximum number of threads for calls, which may wait for the disk."""

_T = TypeVar("_T")
Notify = Callable[[Changed], None]


class SharedBroker:
    """The broker library of one store, shared by all clients of this process."""

    def __init__(self, path: str, *, create: bool) -> None:
        """Open the store. Raises the errors of `Store.open`."""
        store = Store.open(path, create=create)
        try:
            self.broker = Broker(store)
        except BaseException:
            store.close()
            raise
        self.users, self._checks = 0, False
        self._members, self._groups = Layout(store.path).members, dict[str, FileLock]()

    @classmethod
    def acquire(cls, path: str, *, create: bool) -> "SharedBroker":
        """Return the broker library of a store, which is opened if no client uses it."""
        with _open.lock:
            shared = _open.brokers.get(path) or cls(path, create=create)
            _open.brokers[path] = shared
            shared.users += 1
            return shared

    def release(self, path: str) -> None:
        """Close the store if no other client uses it."""
        with _open.lock:
            self.users -= 1
            if not self.users:
                del _open.brokers[path]
                self._close()

    def _close(self) -> None:
        try:
            self.broker.close()
        finally:
            for lock in self._groups.values():
                lock.close()

    def hold_group(self, group: str) -> None:
        """Hold a group for this process.

        The members of another process would not know of these, and consume the same messages.
        Raises StoreLockedError (GROUP_IN_USE).
        """
        with _open.lock:
            if group in self._groups:
                return
            make_directory(self._members)
            lock = FileLock(self._members / group)
            if not lock.try_lock():
                lock.close()
                raise _in_use(group, self._members / group)
            _write_pid(lock.path)
            self._groups[group] = lock

    def release_group(self, group: str) -> None:
        """Release a group that has no more members in this process."""
        with _open.lock:
            consumers = self.broker.consumers
            if not consumers.members.ids(group, consumers.ages()):
                lock = self._groups.pop(group, None)
                if lock is not None:
                    lock.close()

    def check_transactions(self) -> None:
        """Start the thread that checks transactions, unless it runs."""
        with _open.lock:
            if not self._checks:
                self._checks = True
                self.broker.transactions.ask_through(_NoProducers())


class _Open:
    """The stores that this process has open, by path."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Remove all stores: a forked child does not have their threads."""
        self.lock, self.brokers = threading.Lock(), dict[str, SharedBroker]()


_open = _Open()
os.register_at_fork(after_in_child=_open.forget)


class EmbeddedTransport:
    """The `ClientTransport` of one instance. Blocking calls run in threads of its event loop."""

    def __init__(self, path: str, shared: SharedBroker) -> None:
        """Use a broker library, which `close` releases. Clients call `open`."""
        self._path, self._shared, self._broker = path, shared, shared.broker
        self._store, self._consumers = self._broker.store, self._broker.consumers
        self._threads = LoopThreads(_BLOCKING_CALLS, "pyrocket-client-call")
        self._arrivals = Arrivals(self._store)
        self._storage, self._name = consumption_of(self._store), self._store.broker_name

    @classmethod
    async def open(cls, path: str, *, create: bool = False) -> "EmbeddedTransport":
        """Open the store at an absolute path. Raises the errors of `Store.open`."""
        path = os.path.realpath(path)
        shared = await _blocking(partial(SharedBroker.acquire, path, create=create))
        return cls(path, shared)

    async def close(self) -> None:
        """Release the broker library."""
        await _blocking(partial(self._shared.release, self._path))
        self._threads.shutdown(wait=False)

    async def route(self, topic: str) -> TopicRoute:
        """Return the queues of a topic. Raises TopicNotFoundError."""
        config = await self._threads.run(partial(self._storage.topic, topic))
        if config is None:
            raise _no_topic(topic)
        return self._route_of(config)

    async def route_if_created(self, topic: str) -> TopicRoute:
        """Return the queues that a missing topic will have; see `ClientTransport`."""
        check_topic_name(topic)
        config = self._store.config
        if not config.auto_create_topics:
            raise _no_topic(topic)
        return self._route_of(TopicConfig(topic, config.default_queues, config.default_queues))

    def _route_of(self, topic: TopicConfig) -> TopicRoute:
        def queues(count: int) -> list[MessageQueue]:
            return [MessageQueue(topic.name, self._name, number) for number in range(count)]

        readable = queues(topic.read_queues if topic.readable else 0)
        return TopicRoute(readable, queues(topic.write_queues if topic.writable else 0))

    async def brokers(self) -> Sequence[str]:
        """Return the name of the store's broker."""
        return [self._name]

    async def similar_topics(self, topic: str) -> Sequence[str]:
        """Return existing topics whose names are similar to that of a missing one."""
        try:
            return similar_to(topic, await self._threads.run(self._store.topics.all))
        except PyrocketError:
            return []

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage]
    ) -> list[SendResult]:
        """Append all messages to one queue, or none."""
        return await asyncio.wrap_future(
            await self._threads.run(partial(self._broker.producers.send, queue, messages))
        )

    async def send_half(
        self,
        group: str,
        queue: MessageQueue,
        message: OutgoingMessage,
        immunity_s: int | None = None,
    ) -> Undecided:
        """Store a half message."""
        send = self._broker.producers.send_half
        return await self._threads.run(partial(send, group, queue, message, immunity_s))

    async def end_transaction(
        self, undecided: Undecided, state: LocalTransactionState, *, from_check: bool
    ) -> None:
        """Commit or roll back a half message."""
        end = self._store.transactions.end
        await self._threads.run(partial(end, undecided.half, state, from_check=from_check))

    def watch_checks(self, group: str, ask: Callable[[Undecided], None]) -> Callable[[], None]:
        """Call `ask` for each half message to be decided; return a function to stop."""
        loop = asyncio.get_running_loop()

        def pass_on(undecided: Undecided) -> bool:
            _call_in(loop, partial(ask, undecided))
            return True

        self._shared.check_transactions()
        return self._broker.producers.watch_checks(group, pass_on)

    async def heartbeat(self, broker: str, heartbeat: Heartbeat) -> bool:
        """Join or stay in the groups of a heartbeat. Also raises GROUP_IN_USE."""
        for data in heartbeat.consumers:
            await self._threads.run(partial(self._shared.hold_group, data.group))
        return await self._threads.run(partial(self._consumers.heartbeat, heartbeat))

    async def group_starts(self, broker: str, group: str) -> GroupStarts:
        """Return the starts of a group, and the end of the log."""
        return await self._threads.run(partial(self._consumers.group_starts, group))

    async def start_offset(
        self, group: str, queue: MessageQueue, start: GroupStart | None = None
    ) -> int:
        """Return the offset at which a group starts to consume a queue."""
        find = partial(self._consumers.start_offset, group, queue, start)
        return await self._threads.run(find)

    async def unregister(self, broker: str, client_id: str, group: str) -> None:
        """Leave a group."""
        await self._threads.run(partial(self._consumers.members.unregister, client_id, group))
        await self._threads.run(partial(self._shared.release_group, group))

    async def members(self, broker: str, group: str) -> Sequence[str]:
        """Return the client ids of a group's live members, which are all in this process."""
        return self._consumers.members.ids(group, self._consumers.ages())

    async def check_filter(self, broker: str, topic: str, subscription: Subscription) -> None:
        """Compile an expression."""
        self._consumers.check_filter(subscription)

    async def lock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> Mapping[MessageQueue, bool]:
        """Lock queues; return those that were granted, with whether they were locked before."""
        return await self._threads.run(partial(self._consumers.lock, group, client_id, queues))

    async def unlock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> None:
        """Release locks."""
        await self._threads.run(partial(self._consumers.unlock, group, client_id, queues))

    async def pull(self, request: Pull) -> Pulled:
        """Return messages of a queue; wait for new ones for the request's time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.hold_ms / 1000
        look = partial(self._consumers.pulls.pull, request)
        while (raw := await self._threads.run(look)).status is PullStatus.NO_NEW_MSG:
            left = deadline - loop.time()
            if left <= 0:
                break
            await self._arrivals.wait(request.queue, request.offset, left)
        messages = messages_of(raw.records)
        return Pulled(raw.status, raw.next_offset, raw.available, messages)

    async def bounds(self, queue: MessageQueue) -> QueueOffsets:
        """Return the minimum and maximum offset of a queue. Raises QueueNotFoundError."""

        def find() -> QueueOffsets:
            low = self._store.min_offset(queue.topic, queue.queue_id)
            return QueueOffsets(low, self._store.max_offset(queue.topic, queue.queue_id))

        return await self._threads.run(find)

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the first message stored at or after a time."""
        at = partial(self._store.offset_by_time, queue.topic, queue.queue_id, time_ms)
        return await self._threads.run(at)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the next offset that a group has committed for a queue."""
        return await self._threads.run(partial(self._consumers.committed, group, queue))

    async def commit(
        self, group: str, client_id: str, incarnation: str, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, Committed]:
        """Commit offsets."""
        commit = partial(self._consumers.commit, group, client_id, incarnation, offsets)
        return await self._threads.run(commit)

    async def send_back(
        self,
        group: str,
        queue: MessageQueue,
        queue_offset: int,
        delay_level: int,
        max_reconsume_times: int,
        failed_attempts: int = 1,
    ) -> None:
        """Copy a message to the group's retry topic, or to its dead-letter topic."""

        def send_back() -> "Future[None]":
            return self._consumers.send_back(
                group, queue, queue_offset, delay_level, max_reconsume_times, failed_attempts
            )

        await asyncio.wrap_future(await self._threads.run(send_back))

    def watch(self, group: str, client_id: str, notify: Notify) -> Callable[[], None]:
        """Call `notify` in the event loop at each change of a group; return a function to stop."""
        loop = asyncio.get_running_loop()

        def pass_on(changed: str) -> None:
            if changed == group:
                _call_in(loop, partial(notify, Changed(self._name, group)))

        return self._consumers.members.watch(pass_on)


class _NoProducers:
    """No producers are connected to a store that only this process uses."""

    def topics(self) -> Collection[str]:
        return ()

    def room(self, topic: str) -> int:
        return 0

    def ask(self, topic: str, request: CheckRequest) -> bool:
        """Return False: there are no topics to ask for."""
        return False


def _write_pid(path: Path) -> None:
    """Write the id of this process into a lock file, for the error in another process."""
    descriptor = open_file(path, os.O_WRONLY | os.O_TRUNC)
    try:
        write_at(descriptor, b"%d" % os.getpid(), 0)
    finally:
        os.close(descriptor)


def _in_use(group: str, file: Path) -> StoreLockedError:
    holder = (read_or_none(file) or b"").decode(errors="replace")
    return StoreLockedError(
        f"the group {group!r} is consumed by process {holder}, over the same directory.",
        remedy="Start the group's consumers in one process, or run `pyrocket broker` and use its"
        " endpoint.",
        code="GROUP_IN_USE",
    )


async def _blocking(call: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(None, call)


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # The loop has ended.
        loop.call_soon_threadsafe(call)


def _no_topic(topic: str) -> TopicNotFoundError:
    return TopicNotFoundError(
        f"there is no topic {topic!r}.", remedy="Create it: pyrocket topic create."
    )
