"""`Pop`: POP consumption of one store."""

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from pyrocket.base.clock import Clock, SteadyTime
from pyrocket.broker.append_queue import Append
from pyrocket.broker.pop.events import Event, encode_events
from pyrocket.broker.pop.group import GroupState, GroupStates, QueueKey
from pyrocket.broker.pop.handles import Handles
from pyrocket.broker.pop.java_pops import take_over
from pyrocket.broker.pop.offsets import OffsetKeeper
from pyrocket.broker.pop.receive import Receiver, Wanted
from pyrocket.broker.pop.recovery import recover, save
from pyrocket.broker.pop.sweep import Mover
from pyrocket.broker.pop.values import DeliveryLag, Lags, PopSettings, Received, Stored, Swept
from pyrocket.engine.received_records import ReceivedRecords
from pyrocket.errors import (
    GroupNotFoundError,
    OffsetOutOfRangeError,
    PyrocketError,
    StoreDamagedError,
    StorePermissionError,
    TopicNotFoundError,
)
from pyrocket.filters.message_filter import EVERYTHING, MessageFilter
from pyrocket.formats.receipt import Receipts
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.system_topics import POP_TOPIC, RETRY_PREFIX
from pyrocket.metadata.groups import OffsetsByQueue
from pyrocket.store import Store, consumption_of
from pyrocket.values.admin import GroupConfig
from pyrocket.values.message import QueueOffsets

_MISSING = GroupNotFoundError, StorePermissionError, TopicNotFoundError
"""Errors for a deleted or disabled group, and for a deleted topic."""

_log = logging.getLogger(__name__)


class Pop:
    """Delivers the messages of one store to consumer groups. Safe to share between threads.

    A method adds its changes to the append queue; the future `stored` of its result completes when
    the changes are durable (with asyncio: `wrap_future`). The state changes at once, so a message
    is not delivered twice in the meantime. A message is acked only when its ack has been appended.
    Only `sweep`, `snapshot` and `close` wait for the disk.

    All times are those of `now`, which starts at the store's clock or at the last time in the
    recovered state, whichever is later. If the clock is set back, no message therefore stays
    invisible for longer than its invisible time, neither before nor after a restart.
    """

    def __init__(
        self,
        store: Store,
        append: Append,
        settings: PopSettings | None = None,
        ages: Clock | None = None,
    ) -> None:
        """Recover the state: the last snapshot, and the records after it.

        ages: Counts the time that passes; by default `steady_clock`, or the store's test clock.
        """
        self._storage, self._append = consumption_of(store), append
        self._settings = settings or PopSettings()
        self._storage.ensure_topics({POP_TOPIC: 1})
        self._storage.watch_queues()
        recovered = recover(self._storage)
        start_ms = max(self._storage.now(), recovered.last_ms)
        self.now = SteadyTime(start_ms, self._storage.ages if ages is None else ages)
        self._states = GroupStates(self._storage, self._put, recovered.groups)
        self._key, receipts = recovered.key, Receipts(recovered.key)
        self._saving = threading.Lock()
        self._receiver = Receiver(self._storage, self._settings, receipts, self._put, self.now)
        handles = Handles(self._storage, self._states, receipts, self._put, self.now)
        self.ack, self.change_invisible = handles.ack, handles.change_invisible
        self.extend, self.forward_to_dlq = handles.extend, handles.forward_to_dlq
        self.drop, self.drop_topic = self._states.drop, self._states.drop_topic
        self._keeper = OffsetKeeper(self._storage, self._put)
        self._mover = Mover(self._storage, self._settings, self._put)
        self._saved_ms = self.now() if recovered.from_snapshot else 0
        self._committed_ms = 0
        self._resume()
        if not recovered.from_snapshot:
            self._save()

    def receive(
        self,
        group: str,
        topic: str,
        *,
        max_messages: int = 32,
        invisible_ms: int = 60_000,
        where: MessageFilter | None = None,
        attempt_id: str = "",
        longest: int | None = None,
    ) -> Received:
        """Deliver the available messages of all queues, without waiting.

        Retry topics come first; in each queue, messages that are visible again come before new
        messages. Each receive starts at a different queue. Messages that `where` does not select
        are acked. Each message is invisible to the group for `invisible_ms`. In a FIFO group, a
        message is delivered only when all earlier messages with its sharding key are acked, and the
        same `attempt_id` returns the same messages again.

        Raises GroupNotFoundError, TopicNotFoundError, StorePermissionError if the group may not
        consume, BrokerBusyError, and LongBodyError if a body has more than `longest` bytes.
        """
        wanted = Wanted(
            topic=topic,
            max_messages=max_messages,
            invisible_ms=invisible_ms,
            where=where or EVERYTHING,
            attempt_id=attempt_id,
            longest=longest,
        )
        config = self._storage.consuming_group(group)
        with self._states.opened(group) as state:
            return self._receiver.receive(state, config, wanted)

    def sweep(self) -> Swept:
        """Do the periodic work. Call this about once a second, and at `Swept.next_ms`.

        Moves messages with too many attempts to retry and dead-letter topics, saves offsets and
        snapshots at their intervals, takes over offsets that other programs have committed or
        reset, and removes the state of deleted groups.
        """
        now = self.now()
        self._states.drop_deleted()
        done = Swept()
        for state in self._states.all():
            config = self._storage.group(state.name) or GroupConfig(state.name)
            done = done.plus(self._mover.sweep(state, config, now))
        due = _is_due(now, self._committed_ms, self._settings.commit_ms)
        if due or self._keeper.was_changed():
            self._committed_ms = now
            self._commit()
        if _is_due(now, self._saved_ms, self._settings.snapshot_ms):
            self._save()
        return done.plus(Swept(self._keeper.news()))

    def arrivals(self) -> list[tuple[str, int]]:
        """Return topic and queue id of the queues with new messages since the last call. Cheap.

        Pass them to `Holds.arrived`. Call this after each append, and also every few milliseconds,
        because the delay service appends too.
        """
        return [place for place in self._storage.changed_queues() if place[0] != POP_TOPIC]

    def snapshot(self) -> None:
        """Save the offsets and the complete state, so that earlier records are no longer needed."""
        with self._saving:
            self._saved_ms = self.now()
            self._states.drop_deleted()
            self._keeper.save_all(self._states.all())
            save(self._storage, self._key, self._states.all, self.now)

    def reset(
        self,
        group: str,
        topic: str,
        commit: Callable[[], OffsetsByQueue],
        queues: Collection[int] | None = None,
    ) -> OffsetsByQueue:
        """Reset the offsets of these queues, or all, by `commit`, which returns the new offsets.

        The group restarts there, also if the file had the same offset and later ones are acked.
        """
        with self._saving:
            offsets = commit()
            reset = {key: at for key, at in offsets.items() if queues is None or key in queues}
            self._keeper.restart(self._states.known(group), topic, reset)
        return offsets

    def lag(self, group: str, topic: str) -> Lags:
        """Return the lag of a group in each queue of a topic and of its retry topics."""
        self._storage.consuming_group(group)
        state = self._states.known(group)
        with state.lock:
            places = self._receiver.places(state, topic)
            return {place: self._lag_in(state, place) for place in places}

    def _lag_in(self, state: GroupState, place: QueueKey) -> DeliveryLag:
        """Return the lag in one queue. Requires `state.lock`."""
        known, queue = self._storage.bounds(*place), state.queues.get(place)
        if queue is None:
            committed = cursor = self._receiver.first_offset(state.name, place)[1]
            in_flight = 0
        else:
            committed, cursor, in_flight = queue.committed, queue.next, len(queue.flight)
        ready = max(known.maximum - max(cursor, known.minimum), 0)
        delay = self._delay_ms(place, committed, known) if in_flight + ready else 0
        return DeliveryLag(known.maximum, committed, in_flight, ready, delay)

    def _delay_ms(self, place: QueueKey, committed: int, known: QueueOffsets) -> int:
        oldest = max(committed, known.minimum)
        if oldest >= known.maximum:
            return 0
        try:
            return max(self._storage.now() - self._storage.store_time(*place, oldest), 0)
        except (OffsetOutOfRangeError, StoreDamagedError):
            return 0

    def lags(self) -> Iterator[tuple[str, str, Lags]]:
        """Yield group, topic and lag of each topic that a group has consumed."""
        for state in self._states.all():
            with state.lock:
                topics = {name for name, _ in state.queues if not name.startswith(RETRY_PREFIX)}
            for topic in sorted(topics):
                with suppress(*_MISSING):
                    yield state.name, topic, self.lag(state.name, topic)

    def in_flight(self, group: str) -> int:
        """Return the number of messages in flight of a group."""
        state = self._states.known(group)
        with state.lock:
            return state.in_flight

    @property
    def damaged(self) -> int:
        """The number of damaged messages that groups could not receive."""
        return self._storage.damaged

    def close(self) -> None:
        """Save a snapshot for the next start, which otherwise reads the records in the log.

        The append queue must still be open.
        """
        self._save()

    def _resume(self) -> None:
        """Take over external offsets, and then the messages in flight of a RocketMQ 5 broker.

        This order matters, because the broker has committed offsets after those messages. After an
        error, the next start tries again, because the broker's topic is consumed only at the end.
        """
        try:
            self._states.drop_deleted()
            self._keeper.save_all(self._states.all())
            take_over(self._storage, self._states.made, self._put, self.now)
        except (PyrocketError, OSError) as error:
            _log.warning("taking over the state of a RocketMQ broker failed: %s", error)
        self._commit()

    def _save(self) -> None:
        try:
            self.snapshot()
        except (PyrocketError, OSError) as error:
            _log.warning("saving the state of groups failed and will be retried: %s", error)

    def _commit(self) -> None:
        try:
            with self._saving:
                self._keeper.save_all(self._states.all())
        except (PyrocketError, OSError) as error:
            _log.warning("saving the offsets of groups failed and will be retried: %s", error)

    def _put(
        self, state: GroupState, events: Sequence[Event], batches: Sequence[EncodedBatch] = ()
    ) -> Stored:
        """Append batches and events, all or none, and apply the events. Requires `state.lock`."""
        now = self.now()
        record = encode_events(events, now)
        stored = self._append(ReceivedRecords({}, [*batches, record]))
        for event in events:
            state.change(event, stored, now, moved=bool(batches))
        return stored


def _is_due(now: int, last: int, interval: int) -> bool:
    """Whether the interval has passed, or the clock was set back."""
    return not last <= now < last + interval
