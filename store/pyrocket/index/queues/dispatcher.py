"""Builds queue entries from log records. The result is repeatable, because records never change.

Messages without a transaction and committed messages get an entry; prepared and rolled-back
messages do not. Source: `DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue`.

An entry contains the location of the record and a tags code: the hash of TAGS (0 without tags), or
in the delay topic the due time of the message. Source: `CommitLog.checkMessageAndReturnSize`,
`ScheduleMessageService.computeDeliverTimestamp`.

A checkpoint flushes the queues that have changed since the last one, and saves their ends. Other
processes append, too: a process only knows which queues changed in a log range if it has written
all entries of the range itself.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Bools, Ints
from pyrocket.formats.hashes import tags_hashes
from pyrocket.formats.properties import DELAY
from pyrocket.formats.property_columns import numbers
from pyrocket.formats.queue_entry import ENTRY, Entries, build_entries
from pyrocket.formats.record_crc import OUR_HOST
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.index.queues.consume_queue import QueueTable

Queue = tuple[str, int]
"""Topic and queue id."""


class ChangedQueues:
    """The queues that have entries in one range of the log. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: dict[Queue, int] = {}
        self._start = self._end = -1
        self._new: dict[Queue, int] | None = None

    def watch(self) -> None:
        """Start collecting queues for `take_new`."""
        with self._lock:
            self._new = self._new or {}

    def take_new(self, dispatched: int) -> list[Queue]:
        """Return the queues with new entries since the last call that are visible to readers."""
        with self._lock:
            known = self._new or {}
            new = [queue for queue, end in known.items() if end <= dispatched]
            for queue in new:
                del known[queue]
            return new

    def begin(self, start: int, end: int) -> None:
        """Record that this process is about to write the entries of the log range [start, end).

        If another process has written the entries before `start`, tracking restarts at `start`.
        """
        with self._lock:
            if not self._start <= start <= self._end:
                self._last.clear()
                self._start = self._end = start
            self._end = max(self._end, end)

    def add(self, topic: str, queue_id: int) -> None:
        """Record that a queue is about to get entries for the current log range."""
        with self._lock:
            self._last[topic, queue_id] = self._end
            if self._new is not None:
                self._new[topic, queue_id] = self._end

    def between(self, start: int, end: int) -> list[Queue] | None:
        """Return the queues with entries in the log range [start, end), and possibly after it.

        Returns None if any queue may have changed.
        """
        with self._lock:
            if start == end:
                return []
            known = self._start <= start and end <= self._end
            return [queue for queue, last in self._last.items() if last > start] if known else None

    def forget_before(self, end: int) -> None:
        """Remove the queues without entries at or after log offset `end`."""
        with self._lock:
            if self._start <= end <= self._end:
                self._last = {queue: last for queue, last in self._last.items() if last > end}
                self._start = end


_SECOND = 1000
_LEVEL = r"^[0-9]{1,9}$"


def tags_codes(run: RecordFields, delay_levels_ms: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the tagsCode of each record; level n is delayed by `delay_levels_ms[n - 1]`."""
    properties = run.property_columns
    codes = tags_hashes(properties)
    delayed = pc.equal(run.topics, SCHEDULE_TOPIC.encode()).to_numpy(zero_copy_only=False)
    if not delayed.any():
        return codes
    levels = numbers(properties.column(DELAY), _LEVEL)
    delays = np.array((0, *delay_levels_ms))[np.minimum(levels, len(delay_levels_ms))]
    return np.where(delayed & (levels > 0), run.store_timestamp + delays, codes)


def underivable(
    run: RecordFields, entries: Entries, found: Entries, *, ours_too: bool = False
) -> Bools:
    """Return which of the entries `found` are valid although their tags codes differ.

    A broker computes the due times of messages with delay levels from its own levels, which it does
    not store. Such an entry is valid if the due time is a whole number of seconds after the store
    time. `entries` are the entries built from the run. With `ours_too`, this also applies to
    entries that pyrocket wrote.
    """
    records = run.part(np.searchsorted(run.physical_offset, entries["physical_offset"]))
    same = np.asarray(found["physical_offset"] == entries["physical_offset"], bool)
    same &= found["size"] == entries["size"]
    delays = found["tags_code"] - records.store_timestamp
    same &= (delays > 0) & (delays % _SECOND == 0)
    if same.any():
        same &= numbers(records.property_columns.column(DELAY), _LEVEL) > 0
    return same if ours_too else same & ~records.has_store_host(OUR_HOST)


WHOLE_LOG = 2**63 - 1
"""A log end that includes every entry."""

FirstOffset = Callable[[str, int], int]
"""Returns the first offset of a queue without files: 0, or the end of the queue of a deleted topic
with this name."""


class Dispatcher:
    """Writes the queue entries for runs of the log. Needs the write lock."""

    def __init__(
        self, queues: QueueTable, first_offset: FirstOffset, delay_levels_ms: Sequence[int]
    ) -> None:
        self.queues, self.first_offset = queues, first_offset
        self._levels = delay_levels_ms
        self.changed = ChangedQueues()

    def dispatch(
        self,
        runs: Iterable[RecordFields],
        *,
        dispatched: int = WHOLE_LOG,
        complete: Container[str] = (),
        only: Container[tuple[str, int]] | None = None,
        whole: bool = False,
        keep_due_times: "KeepDueTimes | None" = None,
    ) -> None:
        """Write the entry of each record of the runs, in log order. Idempotent.

        Args:
            runs: Consecutive runs of the log.
            dispatched: Entries of records from this log offset on are rewritten, because a writer
                may have been killed while it wrote them.
            complete: Topics whose queues must start at their first offset.
            only: The queues to write; by default all.
            whole: Whether the runs are the entire log. Then the existing entries of a queue are
                removed if they do not reach the start of the log, or if the queue restarts at
                offset 0.
            keep_due_times: Returns parts of level queues with the due times to keep.

        Raises StoreDamagedError (QUEUE_GAP).
        """
        for run in runs:
            run.check_structure()
            # Entries of records before this run exist already.
            below = max(dispatched, int(run.physical_offset[0]))
            for part in queue_parts(run, self._levels):
                if only is not None and part.queue not in only:
                    continue
                if part.topic == SCHEDULE_TOPIC:
                    part = (keep_due_times or self._keep_due_times)(run, part)
                self._put_part(part, below, dispatched, complete, whole)

    def _put_part(
        self, part: "QueuePart", below: int, dispatched: int, complete: Container[str], whole: bool
    ) -> None:
        queue = self.queues.get(part.topic, part.queue_id)
        reached, begin = queue.reached(below), self.first_offset(*part.queue)
        if not reached:
            # Earlier records belong to a deleted topic with this name.
            part = part.since(begin)
        part = part.since_restart(begin)
        if not len(part.offsets):
            return
        _check_dense(part)
        first, place = int(part.offsets[0]), int(part.entries[0]["physical_offset"])
        # The queue may only have entries of expired records, and possibly not all of them.
        lacks_old = whole and reached == queue.reached(dispatched) < first
        if (first == 0 or lacks_old) and queue.drop_if_older(place):
            reached = 0
        if part.topic not in complete:  # Older log files have been deleted.
            begin = max(begin, first)
        self.changed.add(*part.queue)
        queue.put(first, part.entries, reached or begin, again=True)

    def _keep_due_times(self, run: RecordFields, part: "QueuePart") -> "QueuePart":
        """Return a part of a level queue with the due times of its existing entries."""
        queue = self.queues.get(*part.queue)
        first = int(part.offsets.min())
        there = queue.entries(first, int(part.offsets.max()) + 1)
        entries = np.zeros(len(part.offsets), ENTRY)
        known = part.offsets - first < len(there)
        entries[known] = there[part.offsets[known] - first]
        return part.keeping(entries, underivable(run, part.entries, entries))

    def put(self, topic: str, queue_id: int, first: int, entries: Entries) -> None:
        """Write entries from queue offset `first`, the end of the queue, on."""
        self.changed.add(topic, queue_id)
        self.queues.get(topic, queue_id).put(first, entries, first)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next entry. Requires the write lock."""
        last = self.queues.get(topic, queue_id).max_offset(WHOLE_LOG)
        return last or self.first_offset(topic, queue_id)


@dataclass(frozen=True)
class QueuePart:
    """The records of one queue in a run: their queue offsets and the entries for them."""

    topic: str
    queue_id: int
    offsets: Ints
    entries: Entries

    @property
    def queue(self) -> tuple[str, int]:
        return self.topic, self.queue_id

    def keeping(self, found: Entries, rows: Bools) -> "QueuePart":
        """Return the part with the tags codes of `found` in these rows."""
        if not rows.any():
            return self
        entries = self.entries.copy()
        entries["tags_code"][rows] = found["tags_code"][rows]
        return replace(self, entries=entries)

    def since(self, offset: int) -> "QueuePart":
        return self._of(self.offsets >= offset) if offset else self

    def since_restart(self, begin: int) -> "QueuePart":
        """Return the records after the last restart of a queue whose first offset is `begin`.

        If a topic was deleted and created again, a broker restarts its queues at offset 0.
        """
        zeros = np.flatnonzero(self.offsets == 0)
        if begin or not len(zeros) or not zeros[-1]:
            return self
        return self._of(np.arange(len(self.offsets)) >= zeros[-1])

    def _of(self, chosen: npt.NDArray[np.bool_]) -> "QueuePart":
        return QueuePart(self.topic, self.queue_id, self.offsets[chosen], self.entries[chosen])


KeepDueTimes = Callable[[RecordFields, QueuePart], QueuePart]
"""Returns the part of a queue with the due times of its existing entries."""


def queue_parts(run: RecordFields, delay_levels_ms: Sequence[int]) -> Iterator[QueuePart]:
    """Yield the part of each queue in a run whose structure has been checked, in log order."""
    codes = tags_codes(run, delay_levels_ms)
    entries = build_entries(run.physical_offset, run.sizes, codes)
    for (topic, queue_id), rows in run.by_queue:
        yield QueuePart(topic, queue_id, run.queue_offset[rows], entries[rows])


def _check_dense(part: QueuePart) -> None:
    steps = np.diff(part.offsets)
    if (steps != 1).any():
        raise StoreDamagedError(
            f"the log has a gap in queue {part.queue_id} of {part.topic!r} after offset"
            f" {int(part.offsets[int(np.argmax(steps != 1))])}.",
            code="QUEUE_GAP",
        )
