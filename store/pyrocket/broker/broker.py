"""`Broker`: serves one store."""

import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import disk_usage

from pyrocket.base.config import StoreConfig
from pyrocket.base.rounds import GuardedThread
from pyrocket.base.versions import PROTOCOL, RELEASE
from pyrocket.broker.consumers.consumers import Consumers
from pyrocket.broker.half_checks import BrokerTransactions
from pyrocket.broker.polls import Polls
from pyrocket.broker.pop.pop import Pop
from pyrocket.broker.pop.values import DeliveryLag
from pyrocket.broker.replicas import Replicas
from pyrocket.broker.sends import Sends
from pyrocket.broker.sink import StoreSink
from pyrocket.broker.source import StoreSource
from pyrocket.broker.traces import Traces
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import DISPATCHED, FAILED, FLUSHED, PUBLISHED, SharedState
from pyrocket.engine.disk_room import DiskRoom
from pyrocket.errors import GroupNotFoundError, TopicNotFoundError
from pyrocket.formats.record import Host
from pyrocket.formats.system_topics import POP_TOPIC, RETRY_PREFIX
from pyrocket.metadata.broker_file import BrokerFile
from pyrocket.metadata.groups import OffsetsByQueue
from pyrocket.metadata.identity import load_identity
from pyrocket.metadata.retention import RetentionFile
from pyrocket.store import Store, reader_of, writer_of
from pyrocket.values.admin import ResetTo
from pyrocket.values.source import Hello, RunningState, Version
from pyrocket.values.transactions import CheckPolicy

CAPABILITIES = (
    *("look-ups by key or id", "views", "offsets of consumer groups"),
    *("exactly-once writes", "creating topics"),
)


@dataclass(frozen=True)
class ConsumerLag:
    """The lag of a group in a topic's queues, or with `is_retry` in the queues of its retries."""

    group: str
    topic: str
    is_retry: bool
    queues: Sequence[DeliveryLag]


_V4_BYTES = 4


class ServedStore:
    """A store that is open to be served, and what its clients ask first. Thread-safe."""

    def __init__(self, store: Store, max_request_bytes: int = 0) -> None:
        self.store, self.source = store, StoreSource(store)
        self._max_request_bytes = max_request_bytes

    @property
    def path(self) -> Path:
        return self.store.path

    def hello(self) -> Hello:
        """Return the answer to a client's first call."""
        store = self.store
        return Hello(
            release=RELEASE,
            protocol=PROTOCOL,
            store=store.uuid,
            broker=store.broker_name,
            epoch=store.history.epoch,
            is_recovering=store.history.recovery_is_interrupted,
            now_ms=store.now(),
            log_file_bytes=store.config.log_file_bytes,
            delay_levels=store.config.delay_levels_text,
            default_queues=store.config.default_queues,
            auto_create_topics=store.config.auto_create_topics,
            max_message_bytes=store.config.max_message_bytes,
            timer_max_delay_ms=store.config.timer_max_delay_ms,
            max_request_bytes=self._max_request_bytes,
            capabilities=CAPABILITIES,
        )

    def version(self) -> Version:
        """Return the version of the store. Cheap: reads no file that has not changed."""
        at, history = self.store.position(), self.store.history
        recovering = history.recovery_is_interrupted
        return Version(at.published, at.dispatched, at.structure, history.epoch, recovering)

    def log_bytes(self) -> int:
        """Return the size of the log in bytes."""
        return self.store.position().published - reader_of(self.store).log.first_offset()


class Broker(ServedStore):
    """Serves a store that is open for writing. Its methods are synchronous and thread-safe."""

    def __init__(
        self,
        store: Store,
        *,
        staging_percent: int = 10,
        max_request_bytes: int = 0,
        checks: CheckPolicy | None = None,
        trace_topic: str = "",
        auto_create_groups: bool = True,
        holds_groups: bool = False,
        sync_timeout_s: float = 0,
    ) -> None:
        """Serve an open store.

        staging_percent: The share of the disk for rows that are staged but not published.
        max_request_bytes: The maximum size of one request, as reported to clients; 0 if unknown.
        checks: When producers are asked about undecided half messages.
        trace_topic: The topic for the message trace; empty for no trace.
        auto_create_groups: Whether the first heartbeat of a consumer group creates it.
        holds_groups: Whether other processes may open the store, but not consume for its groups.
        sync_timeout_s: How long a send waits for a replica; with 0, it does not.
        """
        super().__init__(store, max_request_bytes)
        self._writer = writer_of(store)
        self._writer.room.keep_reserve()
        store.sink.uploads.limit(disk_usage(store.path).total * staging_percent // 100)
        self.replicas = Replicas(store, sync_timeout_s)
        self.confirmations = self.replicas.confirmations
        self.sink = StoreSink(store, self.confirmations.status)
        self.sends = Sends(store, self.sink.appends.put)
        self.transactions = BrokerTransactions(store, checks or CheckPolicy())
        put = partial(self.sink.appends.put, cancellable=False)
        self.consumers = Consumers(
            store, put, creates_groups=auto_create_groups, holds_groups=holds_groups
        )
        self.is_connected: Callable[[Hashable], bool] = lambda client: True
        is_new = POP_TOPIC not in store.topics.all()
        self._consuming, self._polls = threading.Lock(), None if is_new else self._consume()
        self.traces = Traces(store, self.sends, trace_topic) if trace_topic else None
        self._services, self._flushes = store.run_services(), self._writer.flush_service

    def _consume(self) -> Polls:
        # Changes of a group's state are not cancelled together with the call that made them.
        pop = Pop(self.store, partial(self.sink.appends.put, cancellable=False))
        polls = Polls(pop, lambda client: self.is_connected(client))
        self.sink.appends.after_append = polls.appended
        return polls

    @property
    def polls(self) -> Polls:
        """The long polls of consumers. Created on first use, which creates a system topic."""
        with self._consuming:
            if self._polls is None:
                self._polls = self._consume()
            return self._polls

    @property
    def pop(self) -> Pop:
        """The pop consumption of consumer groups; created on first use."""
        return self.polls.pop

    def advertise(self, host: Host) -> None:
        """Set the address of the broker, which its messages have in their offset ids.

        An address that is no IPv4 address of one machine is ignored: offset ids of RocketMQ 4
        clients have no room for it.
        """
        if len(host[0]) == _V4_BYTES and any(host[0]):
            self.store.lookup.host = host

    def release(self, client: Hashable) -> None:
        """Make the messages of a client that has ended visible again soon."""
        if self._polls is not None:
            self._polls.renewals.release(client)

    def reset_group(
        self, group: str, topic: str, to: ResetTo, *, force: bool = False
    ) -> dict[int, int]:
        """Reset a group's offsets in a topic, and return them; see `Consumers.reset`."""
        reset = partial(self.consumers.reset, group, topic, to, force=force)
        return self.restart(group, topic, reset, to if isinstance(to, Mapping) else None)

    def restart(
        self,
        group: str,
        topic: str,
        commit: Callable[[], OffsetsByQueue],
        queues: Collection[int] | None = None,
    ) -> dict[int, int]:
        """Reset offsets by `commit`, which returns them; see `Pop.reset`."""
        polls = self._polls
        return dict(commit() if polls is None else polls.pop.reset(group, topic, commit, queues))

    def delete_group(self, group: str) -> None:
        """Delete a group, its offsets and its messages in flight; a missing group is ignored."""
        with suppress(GroupNotFoundError):
            self.store.groups.delete(group)
        self.consumers.pulls.forget(group)
        if self._polls is not None:
            self._polls.pop.drop(group)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and the state of groups in it; a missing topic is ignored."""
        with suppress(TopicNotFoundError):
            self.store.topics.delete(name)
        if self._polls is not None:
            self._polls.pop.drop_topic(name)

    def running(self) -> RunningState:
        state = running_state(self.store.path, self._writer.cleaner.is_full)
        term, sync = self.replicas.term, self.confirmations.state
        return replace(state, replicas=self.replicas.states(), term=term, sync=sync)

    @property
    def trouble(self) -> str:
        """The reason why the broker is not ready; empty if it is ready."""
        ended = (
            f"the thread of {what} has ended"
            for what, thread in self._threads().items()
            if not thread.is_running
        )
        writes = self.running().trouble, self._writer.failure.text, self._flushes.rounds.trouble
        return ", ".join(filter(None, (*writes, *ended)))

    def failed_rounds(self) -> dict[str, int]:
        """Return for each thread how many of its rounds have failed."""
        return {what: thread.rounds.failures for what, thread in self._threads().items()}

    def _threads(self) -> dict[str, GuardedThread]:
        """Return the threads that must live as long as the broker, by their work."""
        threads: dict[str, GuardedThread | None] = {
            "flushes": self._flushes,
            "services": self._services,
            "appends": self.sink.appends,
            "confirmations": self.confirmations,
            "long polls": self._polls,
            "transactions": self.transactions,
            "message traces": self.traces,
        }
        return {what: thread for what, thread in threads.items() if thread is not None}

    @property
    def damaged(self) -> int:
        """The number of damaged messages that groups could not receive."""
        return 0 if self._polls is None else self._polls.pop.damaged

    @property
    def dropped_traces(self) -> int:
        """The number of records of the message trace that were not stored."""
        return 0 if self.traces is None else self.traces.dropped

    def lags(self) -> Iterator[ConsumerLag]:
        """Yield the lags of all groups.

        In a topic that a group consumes by pops, the lag is that of the pops, unless the group has
        live members, which consume by pulls. All other lags are computed from committed offsets.
        """
        popped: set[tuple[str, str]] = set()
        pulling = {*self.consumers.members.groups(self.consumers.ages())}
        for group, topic, lags in () if self._polls is None else self._polls.pop.lags():
            if group in pulling:
                continue
            popped |= {(group, name) for name, _ in lags}
            for is_retry in (False, True):
                queues = [lag for (name, _), lag in lags.items() if is_retry == (name != topic)]
                yield ConsumerLag(group, topic, is_retry, queues)
        for group, topic, queues in self.consumers.lags():
            if (group, topic) not in popped:
                yield ConsumerLag(group, topic, topic.startswith(RETRY_PREFIX), queues)

    def close(self) -> None:
        """Append the pending records, stop the services, and close the store cleanly."""
        with closing(self.consumers):
            self.transactions.close()
            if self._polls is not None:
                self._polls.close()
                self._polls.pop.close()
            if self.traces is not None:
                self.traces.close()
            self.sink.close()
            self.confirmations.close()
            self._services.stop()
            self.store.close()


def running_state(path: Path, is_disk_full: bool | None = None) -> RunningState:
    """Return the state of the store in a directory.

    `is_disk_full` is the answer of the store's writer; without it, another process serves the store
    and the disk is examined by the same rules. Raises FileNotFoundError.
    """
    layout = Layout(path)
    with closing(SharedState(layout.state, writable=False)) as page:
        published, flushed, dispatched = page[PUBLISHED], page[FLUSHED], page[DISPATCHED]
        failed = bool(page[FAILED])
    if is_disk_full is None:
        file_bytes = load_identity(layout, StoreConfig()).config.log_file_bytes
        is_served = BrokerFile(layout).read() is not None
        room = DiskRoom(layout, file_bytes, keeps_reserve=is_served)
        is_disk_full = room.is_full(RetentionFile(layout).read())
    return RunningState(published, flushed, dispatched, failed, is_disk_full)
