"""Removing what has had its time: log files, then what points into them.

The caller is in a section. First the log files go, oldest first, each durably before the next: a
crash in between leaves a log that begins later, never one with a hole. From the first one on every
reader's minimum has moved, because minima follow the start of the log; queue and index files that
point below it are only a waste of space until the next cleaning. The other way round a crash would
leave messages without entries, which a recovery has to take for damage.

A queue keeps the file with its last entry, so its offsets go on when all its messages are gone. For
such queues the end is noted beside the topics before anything goes: queues rebuilt from the log
alone go on there too.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from pyrocket.clock import Clock
from pyrocket.config import Retention, StoreConfig
from pyrocket.disk.file_run import FileRun
from pyrocket.disk.layout import Layout
from pyrocket.disk.space import DiskUsage, disk_usage
from pyrocket.errors import (
    OptionError,
    PyrocketError,
    StoreDamagedError,
    StoreUnavailableError,
)
from pyrocket.formats.record_decode import read_store_timestamp
from pyrocket.hooks import Hooks
from pyrocket.index.dispatcher import WHOLE_LOG
from pyrocket.index.key_builder import KeyBuilder
from pyrocket.index.queues import Queues
from pyrocket.log.commit_log import CommitLog
from pyrocket.services.retention import (
    CleaningPlan,
    CleanReport,
    LogFile,
    Removal,
    plan_by_hand,
    plan_cleaning,
)
from pyrocket.services.topics import Topics

INTERVAL_MS = 10_000
"""RocketMQ's cleanResourceInterval: how often a writer looks at most."""

_BUSY_MS = 1000
_FILES_PER_TURN = 10
_HEAD_BYTES = 96
_log = logging.getLogger(__name__)

Section = Callable[[], AbstractContextManager[None]]
"""Takes a turn at the store."""


class Cleaner:
    """Cleans one store that is open for writing; without `retention` only by hand."""

    def __init__(
        self,
        layout: Layout,
        log: CommitLog,
        queues: Queues,
        keys: KeyBuilder,
        topics: Topics,
        clock: Clock,
        retention: Retention | None,
        tell: Callable[[], None],
        flush: Callable[[], None],
        hooks: Hooks,
    ) -> None:
        """Make one; `tell` tells every reader that files have gone, `flush` flushes the log."""
        self._hooks = hooks
        self._layout, self._log, self._queues = layout, log, queues
        self._keys, self._topics = keys, topics
        self._clock, self._retention, self._tell = clock, retention, tell
        self._flush = flush
        self._next_look_ms: int | None = None

    def run_if_due(self, section: Section) -> None:
        """Look whether files have to go, at most every INTERVAL_MS, and remove them.

        `section` must not wait: where others want to write, cleaning is put off. Never raises.
        """
        if not self._is_due():
            return
        policy = self._retention
        self._remove_leftovers(full=policy is not None and self._is_full(policy))
        if policy is None:
            return
        try:
            if self._plan(policy).removals:
                with section():
                    self.remove(self._plan(policy).removals)
        except (PyrocketError, OSError) as error:
            self._next_look_ms = self._clock() + _BUSY_MS
            if getattr(error, "code", "") != "LOCK_TIMEOUT":
                _log.warning("%s was not cleaned: %s", self._layout.root, error)

    def make_room(self) -> None:
        """Raise StoreUnavailableError (DISK_FULL) if appends have to be refused now."""
        policy = self._retention
        if policy is None or not self._is_full(policy):
            return
        if self._is_due():
            self._remove_leftovers(full=True)
            self.remove(self._plan(policy).removals)
        usage = self._usage()
        if usage.ratio > policy.full_ratio:
            raise StoreUnavailableError(
                f"the file system of {self._layout.root} is {usage.ratio:.0%} full; above"
                f" {policy.full_ratio:.0%} nothing is appended.",
                remedy="Free some space, or shorten how long messages are kept.",
                code="DISK_FULL",
            )

    def clean(
        self, section: Section, *, hours: float | None, total_bytes: int | None
    ) -> CleanReport:
        """Remove by hand what exceeds the limits, a few files a turn."""
        now, policy = self._clock(), self._retention
        removals = _plan_by_hand(self._log, policy, now, hours, total_bytes).removals
        queue_files = index_files = 0
        for first in range(0, len(removals) or 1, _FILES_PER_TURN):
            with section():
                done = self.remove(removals[first : first + _FILES_PER_TURN])
            queue_files += done.queue_files
            index_files += done.index_files
        return CleanReport(removals, queue_files, index_files, log_start=self._log.first_offset())

    def remove(self, removals: Sequence[Removal]) -> CleanReport:
        """Remove log files, the log's oldest, and what points into them.

        None goes that holds what a service has to keep there; what it can move, it moves.
        """
        removals = self._not_held(removals)
        if removals:
            for hook in self._hooks.before_removal:
                hook(removals[-1].file.start + self._log.file_bytes)
            # What a queue ends with must not be gone after a loss of power: its offsets would
            # begin again.
            self._flush()
            self._note_ends(removals[-1].file.start + self._log.file_bytes)
        for removal in removals:
            self._log.run.remove(removal.file.start)
            self._tell()
        log_start = self._log.first_offset()
        queue_files = sum(
            self._queues.get(*key).remove_below(log_start) for key in self._queues.on_disk()
        )
        index_files = self._remove_index_files(log_start)
        if queue_files or index_files:
            self._tell()
        return CleanReport(tuple(removals), queue_files, index_files, log_start=log_start)

    def _not_held(self, removals: Sequence[Removal]) -> Sequence[Removal]:
        if not removals:
            return removals
        held = self._hooks.held_from()
        return [one for one in removals if one.file.start + self._log.file_bytes <= held]

    def _remove_index_files(self, log_start: int) -> int:
        try:
            return self._keys.remove_below(log_start)
        except StoreDamagedError as error:
            # Whoever uses the index is told; the space is freed all the same.
            _log.warning("index files of %s stay: %s", self._layout.root, error)
            return 0

    def _plan(self, policy: Retention) -> CleaningPlan:
        return plan_cleaning(policy, log_files(self._log), self._usage(), self._clock())

    def _remove_leftovers(self, *, full: bool) -> None:
        try:
            for hook in self._hooks.leftovers:
                hook(full)
        except (PyrocketError, OSError) as error:
            _log.warning("leftovers in %s stay: %s", self._layout.root, error)

    def _is_full(self, policy: Retention) -> bool:
        return self._usage().ratio > policy.full_ratio

    def _usage(self) -> DiskUsage:
        return disk_usage([self._layout.commit_log, self._layout.consume_queues])

    def _is_due(self) -> bool:
        """Whether it is time; if so, the next time is INTERVAL_MS later."""
        now, due = self._clock(), self._next_look_ms
        # A clock that was set back must not put it off for long.
        if due is not None and due - INTERVAL_MS <= now < due:
            return False
        self._next_look_ms = now + INTERVAL_MS
        return True

    def _note_ends(self, log_start: int) -> None:
        """Note where those queues end that lose their last message."""
        ends: dict[str, dict[int, int]] = {}
        for topic, queue_id in self._queues.on_disk():
            queue = self._queues.get(topic, queue_id)
            end = queue.max_offset(WHOLE_LOG)
            last = queue.entries(max(end - 1, 0), end)
            if len(last) and last["physical_offset"][0] < log_start:
                ends.setdefault(topic, {})[queue_id] = end
        self._topics.note_all_ends(ends)


def preview(
    layout: Layout,
    config: StoreConfig,
    clock: Clock,
    *,
    hours: float | None,
    total_bytes: int | None,
) -> CleanReport:
    """Return what cleaning by hand would remove; writes nothing, not even a lock."""
    run = FileRun(layout.commit_log, config.log_file_bytes, layout.scratch, writable=False)
    log = CommitLog(run)
    try:
        plan = _plan_by_hand(log, config.retention, clock(), hours, total_bytes)
        going = plan.removals
        start = going[-1].file.start + log.file_bytes if going else log.first_offset()
        return CleanReport(going, dry_run=True, log_start=start)
    finally:
        run.close()


def log_files(log: CommitLog) -> list[LogFile]:
    """Return the files of the log that hold messages, oldest first, and how old they are.

    RocketMQ goes by the time a file was modified last, which is when the blank record at its end
    was written, with the first message of the next file. That message's store time says the same,
    and still does in a copy. Of the last file nobody asks.
    """
    stored = [(start, _first_stored(log, start)) for start in log.run.starts()]
    while stored and not stored[-1][1]:
        stored.pop()  # Made in advance, or damaged.
    files: list[LogFile] = []
    closed = stored[-1][1] if stored else 0
    for start, first in reversed(stored):
        files.append(LogFile(start, log.file_bytes, closed))
        closed = first or closed
    return files[::-1]


def _first_stored(log: CommitLog, start: int) -> int:
    return read_store_timestamp(log.read(start, _HEAD_BYTES))


def _plan_by_hand(
    log: CommitLog,
    policy: Retention | None,
    now_ms: int,
    hours: float | None,
    total_bytes: int | None,
) -> CleaningPlan:
    if hours is None and total_bytes is None and policy is not None:
        hours, total_bytes = policy.hours, policy.total_bytes
    if hours is None and total_bytes is None:
        raise OptionError(
            "nothing says how much is to be kept.",
            remedy="Give hours, total_bytes, or both.",
            code="RETENTION_MISSING",
        )
    return plan_by_hand(log_files(log), now_ms, hours=hours, total_bytes=total_bytes)
