"""Recovers a store: finds the valid end of the log, truncates the log, and rebuilds the queues.

Recovery needs exclusive access to the store. It runs before the shared state is valid, and
initializes it. A complete record that was durable is never truncated: if the log has such a record
after a damaged one, recovery fails.
"""

import logging
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from pyrocket.disk.file_checks import check_files, check_lengths
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.io import SyncError
from pyrocket.disk.os_errors import translating_os_errors
from pyrocket.disk.shared_state import (
    CHECKPOINTED,
    DISPATCHED,
    FAILED,
    FLUSHED,
    PUBLISHED,
    RESERVED,
    STORE_TIME,
    STRUCTURE,
    SharedState,
)
from pyrocket.errors import REBUILD_QUEUES, RESTORE_FILE, StoreDamagedError, StoreFailedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.checkpoint import Checkpoint
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.queues.consume_queue import ConsumeQueue, QueueTable
from pyrocket.index.queues.dispatcher import WHOLE_LOG, Dispatcher
from pyrocket.index.queues.missing_files import check_queues_end
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk_all
from pyrocket.log.salvage import check_tail
from pyrocket.log.valid_end import (
    TRUSTED_WHOLLY,
    Dense,
    Durable,
    dense_end,
    recovery_start,
    valid_end,
)

_RESTORE = f"{RESTORE_FILE} To give up its messages, create an empty file `abort` in the store."
_log = logging.getLogger(__name__)

_QueueEnds = dict[tuple[str, int], int]


@dataclass(frozen=True)
class Rebuilt:
    """The ends of the queues, and the number of missing bytes of the log that were durable."""

    ends: _QueueEnds
    missing: int


_STRUCTURES = 2**48
"""`structure` counts modulo this number: it may start with any value, and only has to change."""


Cut = Callable[[int, int], None]
"""Called before the log is truncated, with the offset and the number of lost durable bytes."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known about a store before its recovery, besides the log and the queues.

    Attributes:
        clean: Whether the last shutdown was clean.
        checkpoint: Records up to its time were durable.
        durable_end: Records before this log offset were durable.
        topics: The existing topics, and those of `ranges`, such as system topics.
        ranges: By queue, the offsets that its files are known to have covered.
    """

    clean: bool
    checkpoint: Checkpoint
    durable_end: int
    topics: Container[str]
    ranges: Mapping[tuple[str, int], range]

    @property
    def durable(self) -> Durable:
        """Which part of the log was durable."""
        since_ms = TRUSTED_WHOLLY if self.clean else self.checkpoint.safe_timestamp
        return Durable(self.durable_end, since_ms)


def recover(
    log: CommitLog,
    dispatcher: Dispatcher,
    page: SharedState,
    evidence: Evidence,
    before_change: Callable[[], None],
    before_cut: Cut,
) -> Rebuilt:
    """Make the log, queues and shared state consistent and durable; return the queues' ends.

    No file is changed until the log is known to be intact except for its tail. `before_change` is
    called before the first change. Raises StoreDamagedError, StoreFailedError,
    StoreUnavailableError (WRITE_FAILED).
    """
    root = log.run.folder.parent
    what = "{root} could not be recovered: {error}. No message was lost."
    recovery = _Recovery(log, dispatcher, page, evidence, before_change, before_cut)
    with translating_os_errors(root, "open it again", what=what):
        try:
            return recovery.run()
        except SyncError as error:
            page[FAILED] = 1
            raise StoreFailedError(
                f"fsync failed during the recovery of {root}: {error}.",
                remedy="Check the disk and open it again.",
            ) from error


@dataclass(frozen=True)
class _Recovery:
    log: CommitLog
    dispatcher: Dispatcher
    page: SharedState
    evidence: Evidence
    before_change: Callable[[], None]
    before_cut: Cut

    @property
    def queues(self) -> QueueTable:
        return self.dispatcher.queues

    def run(self) -> Rebuilt:
        if self.page[FAILED]:
            # After a failed fsync: reads have to return what is on disk.
            for run in (self.log.run, *self._runs()):
                run.drop_cached()
        with closing(self.log.run.ignoring_empty_tail()) as whole:
            log = CommitLog(whole, self.log.sealed)
            start, end, stored, missing = replace(self, log=log).checked()
        self.before_change()
        self.log.run.remove_empty_tail()
        for run in self._runs():
            run.remove_empty_tail()
        self.before_cut(end, missing)
        self._erase(end, stored)
        lost = self._cut_queues(start, end)
        first = self.log.first_offset()
        begin, end = self._complete_queues(first if lost else start, end)
        if begin > first and self._is_one_short() and self._log_has_all(begin, end):
            begin, end = self._complete_queues(first, end)
        self._drop_ended_queues()
        self.log.run.sync(start, end)
        for key in self.queues.on_disk():
            restore_mtimes(self.log, self.queues.get(*key), begin, end)
        self._set_shared_state(end, stored, begin)
        ends = {key: self.dispatcher.next_offset(*key) for key in self.queues.on_disk()}
        return Rebuilt(ends, missing)

    def checked(self) -> tuple[int, int, int, int]:
        """Return the start of recovery, the log's end and last store time, and lost durable bytes.

        Changes no file. Raises StoreDamagedError unless the log is intact except for its tail.
        """
        check_files(self.log.run, RESTORE_FILE)
        for run in self._runs():
            check_lengths(run.ignoring_empty_tail(), REBUILD_QUEUES)
        start = recovery_start(self.log, self.evidence.checkpoint, clean=self.evidence.clean)
        end, stored = valid_end(self.log, start, self._density(), self.evidence.durable)
        missing = check_tail(self.log, end, replace(self.evidence.durable, since_ms=stored))
        if self.evidence.clean:
            check_queues_end(self.log.run, self.queues, end, _RESTORE)
        return start, end, stored, missing

    def _is_one_short(self) -> bool:
        """Whether a queue lacks offsets that its files are known to have covered."""
        return self._ends_early() or any(
            self.queues.get(*key).first_entry(0) > known.start
            for key, known in self.evidence.ranges.items()
        )

    def _ends_early(self) -> bool:
        """Whether a queue ends before a known offset, and so would assign offsets a second time."""
        return any(
            self.dispatcher.next_offset(*key) < known.stop
            for key, known in self.evidence.ranges.items()
        )

    def _log_has_all(self, start: int, end: int) -> bool:
        """Whether queues can be rebuilt from the log up to `end`; checks the part before `start`.

        If not, queues whose first or middle files are missing keep their other files. Raises
        StoreDamagedError if the end of a queue is missing.
        """
        fault = self._fault_before(start, end)
        if fault is not None and self._ends_early():
            raise fault
        return fault is None

    def _fault_before(self, start: int, end: int) -> StoreDamagedError | None:
        """Return the error that prevents rebuilding queues from the log before `start`, or None."""
        try:
            self._dense_end(start, end)
        except StoreDamagedError as error:
            _log.warning(
                "%s: queues have missing files that cannot be rebuilt from the log: %s `pyrocket"
                " verify` lists them.",
                *(self.log.run.folder.parent, error.message),
            )
            return error
        return None

    def _density(self) -> Dense:
        return OffsetContinuity(self.dispatcher.first_offset).check

    def _runs(self) -> Iterator[FileQueue]:
        """Yield the files of every queue."""
        for key in self.queues.on_disk():
            yield self.queues.get(*key).run

    def _erase(self, end: int, stored: int) -> None:
        files = self.log.run.starts()
        if files:
            self.log.truncate(end, files[-1] + self.log.file_bytes)
        last = self.log.run.start_of(end - 1)
        if last in files and stored and not self.evidence.clean:
            self.log.run.set_time(last, stored)

    def _cut_queues(self, start: int, end: int) -> bool:
        """Truncate the queues; return whether entries of messages before `start` were removed.

        Such entries are removed only if the log still has the messages. Raises StoreDamagedError.
        """
        # Pre-blank entries point to log offset 0.
        bound = end if self.evidence.clean else max(start, 1)
        lost = self._has_entries_after_damage(bound, start)
        fault = self._fault_before(start, end) if lost else None
        at_gap = fault is None
        if fault and self._has_entries_after_damage(bound, start, at_gap=False):
            raise fault
        for key in self.queues.on_disk():
            self.queues.get(*key).cut(bound, at_gap=at_gap)
        return lost and at_gap

    def _has_entries_after_damage(self, bound: int, start: int, *, at_gap: bool = True) -> bool:
        # One queue at a time, so that `QueueTable` can close the files of the previous ones.
        return any(
            self.queues.get(*key).has_entries_after_damage(bound, start, at_gap=at_gap)
            for key in self.queues.on_disk()
        )

    def _complete_queues(self, start: int, end: int) -> tuple[int, int]:
        """Rewrite the entries of the log range [start, end), or of the whole log if a gap remains.

        Returns the start of the range, and the end of the log, which is lowered if the log has a
        gap.
        """
        first = self.log.first_offset()
        if start > first and self.queues.on_disk():
            try:
                runs = walk_all(self.log, start, end)
                self.dispatcher.dispatch(runs, dispatched=start, complete=self.evidence.topics)
            except StoreDamagedError as error:
                if error.code != "QUEUE_GAP":
                    raise
            else:
                return start, end
        dense = end if start == first else self._dense_end(start, end)
        if dense < end:
            self.before_cut(dense, 0)
            self._erase(dense, 0)
            self._cut_queues(start, dense)
        runs = walk_all(self.log, first, dense)
        self.dispatcher.dispatch(runs, dispatched=first, whole=True)
        return first, dense

    def _dense_end(self, start: int, end: int) -> int:
        return dense_end(self.log, end, self._density(), start, self.evidence.durable)

    def _drop_ended_queues(self) -> None:
        """Delete queues that end before their first offset.

        Their entries belong to messages of a deleted topic. The last of these entries may be
        missing, but offsets that readers have seen must not be assigned again.
        """
        for key in self.queues.on_disk():
            queue = self.queues.get(*key)
            if queue.max_offset(WHOLE_LOG) < self.dispatcher.first_offset(*key):
                queue.drop()

    def _set_shared_state(self, end: int, stored: int, begin: int) -> None:
        page = self.page
        for field in (PUBLISHED, DISPATCHED, RESERVED, FLUSHED):
            page[field] = end
        page.reset_flush_counters()
        page[CHECKPOINTED] = begin
        page[STORE_TIME] = stored
        page[STRUCTURE] = (page[STRUCTURE] + 1) % _STRUCTURES


def expected_ends(log: CommitLog, start: int, end: int) -> dict[tuple[str, int], int]:
    """Return the ends of the queues, by topic and queue id, after the log range [start, end).

    Returns an empty dict if records are damaged; reading the log reports the damage.
    """
    ends: dict[tuple[str, int], int] = {}
    try:
        for run in walk_all(log, start, end):
            run.check_structure()
            for queue, rows in run.by_queue:
                ends[queue] = int(run.queue_offset[rows[-1]]) + 1
    except (StoreDamagedError, FileNotFoundError):
        return {}
    return ends


def restore_mtimes(log: CommitLog, queue: ConsumeQueue, begin: int, end: int) -> None:
    """Flush the entries for the log range [begin, end), and restore the times of their files.

    The time of a file is the store time of its last message. Raises SyncError, OSError.
    """
    low, high = queue.max_offset(begin), queue.max_offset(end)
    if low == high:
        return
    queue.run.sync(low * ENTRY_BYTES, high * ENTRY_BYTES)
    for start in queue.run.starts():
        first = start // ENTRY_BYTES
        stop = min(high, first + queue.run.file_bytes // ENTRY_BYTES)
        if low < stop and first < stop:
            _set_time_of(log, queue, start, stop - 1)


def _set_time_of(log: CommitLog, queue: ConsumeQueue, start: int, offset: int) -> None:
    """Set a file's modification time to the store time of one of its messages."""
    place = int(queue.entries(offset, offset + 1)[0]["physical_offset"])
    stored = log.stored_at(place)
    if stored > 0:
        queue.run.set_time(start, stored)


SYS_INNER_BATCH = 0xC0
"""5.x: one record that occupies several queue offsets."""


class OffsetContinuity:
    """Checks consecutive runs of a log; the first record of each queue may have any offset.

    After the durable end of a log there may be complete records that were written before a
    truncation. Their queue offsets do not continue the queues, so queues cannot be rebuilt from
    them. RocketMQ does not check for these records.
    """

    def __init__(
        self,
        first_offset: Callable[[str, int], int],
        reached: Callable[[str, int], int] = lambda topic, queue_id: 0,
    ) -> None:
        """`reached` returns the end of a queue before the first run; 0 if it is unknown."""
        self._first_offset, self._reached = first_offset, reached
        self._next: dict[tuple[str, int], int] = {}

    def check(self, run: RecordFields) -> int:
        """Return the number of leading records of the next run that continue their queues.

        A queue continues with the next offset, or restarts at 0 if a broker deleted and recreated
        the topic. Records of a topic that pyrocket deleted are not checked.
        """
        good = len(run)
        for queue, rows in run.by_queue:
            if (run.sys_flag[rows] & SYS_INNER_BATCH).any():
                self._next.pop(queue, None)
                continue
            good = min(good, self._first_bad(queue, rows, run.queue_offset[rows], len(run)))
        return good

    def _first_bad(self, queue: tuple[str, int], rows: Ints, offsets: Ints, none: int) -> int:
        begin = self._first_offset(*queue)
        alive = offsets >= begin
        rows, offsets = rows[alive], offsets[alive]
        if not len(rows):
            return none
        reached = self._reached(*queue)
        following = self._next.get(queue) or (max(reached, begin) if reached else offsets[0])
        before = np.concatenate(([following - 1], offsets[:-1]))
        sound = offsets == before + 1
        if not begin:
            sound |= offsets == 0
        self._next[queue] = int(offsets[-1]) + 1
        return none if sound.all() else int(rows[int(np.argmin(sound))])
