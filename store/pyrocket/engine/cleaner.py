"""Deletes expired log files, and the queue and index files that point into them.

Requires the write lock. Log files are deleted first, oldest first, each durably before the next: a
crash leaves a log that starts later, never one with a gap. Minimum offsets follow the start of the
log, so they move with the first deletion; queue and index files that point before it only take up
space until the next cleaning. In the opposite order a crash would leave messages without queue
entries, which recovery has to treat as damage.

A queue keeps the file with its last entry, so its offsets continue when all its messages are
deleted. The end of such a queue is saved with the topics first: a queue rebuilt from the log
continues from there, too.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from pyrocket.arguments import format_size
from pyrocket.clock import Clock
from pyrocket.config import Retention
from pyrocket.disk.machine import DiskUsage, disk_usage, free_bytes
from pyrocket.engine.hooks import Hooks
from pyrocket.engine.recovery import StoreParts
from pyrocket.engine.removable import damaged_index_stays, log_files, planned_by_hand
from pyrocket.engine.retention_rules import (
    CleaningPlan,
    CleanReport,
    Kept,
    Removal,
    hold_back,
    plan_cleaning,
)
from pyrocket.errors import PyrocketError, StoreUnavailableError
from pyrocket.index.queues.dispatcher import WHOLE_LOG

INTERVAL_MS = 10_000
"""RocketMQ's cleanResourceInterval: the least time between two checks of a writer."""

_BUSY_MS = 1000
_SPARE_FILES = 2
_FILLING_RATIO = 0.90
_warned: set[Path] = set()
"""Stores for which this process has logged that the disk is filling."""

_FILES_PER_SECTION = 10
_log = logging.getLogger(__name__)

Section = Callable[[], AbstractContextManager[None]]
"""Returns a context manager that holds the write lock."""


class Cleaner:
    """Cleans one store that is open for writing; without a retention only when asked to."""

    def __init__(
        self,
        store: StoreParts,
        clock: Clock,
        retention: Callable[[], Retention | None],
        flush: Callable[[], None],
        hooks: Callable[[], Hooks],
    ) -> None:
        """`retention` returns the policy in effect, `flush` flushes the log."""
        self._hooks, self._clock, self._retention = hooks, clock, retention
        self._layout, self._log, self._queues = store.layout, store.log, store.queues
        self._keys, self._topics = store.keys, store.topics
        self._structure_changed = store.structure_changed
        self._policy = retention()
        self._flush = flush
        self._next_look_ms: int | None = None

    def refresh(self) -> None:
        """Reload the retention. Raises StoreDamagedError."""
        self._policy = self._retention()

    def run_if_due(self, section: Section) -> None:
        """Delete expired files; checks at most every INTERVAL_MS. Never raises.

        `section` must not wait for the lock: while another process writes, cleaning is postponed.
        """
        if not self._is_due():
            return
        try:
            self.refresh()
            policy = self._policy
            self._remove_leftovers(full=self._is_full(policy))
            if policy is None:
                self._warn_if_filling()
            elif self._plan(policy).removals:
                with section():
                    self.remove(self._plan(policy).removals)
        except (PyrocketError, OSError) as error:
            self._next_look_ms = self._clock() + _BUSY_MS
            if getattr(error, "code", "") != "LOCK_TIMEOUT":
                _log.warning("%s was not cleaned: %s", self._layout.root, error)

    def make_room(self, more: int = 0) -> None:
        """Raise StoreUnavailableError (DISK_FULL) if `more` bytes of records must not be appended.

        With a retention, RocketMQ's disk usage ratios apply, and files are deleted first if
        possible. Without one, two more log files have to fit.
        """
        policy = self._policy
        if policy is None:
            self._check_fits(more)
        elif self._is_full(policy):
            self._clean_full(policy)

    def _clean_full(self, policy: Retention) -> None:
        if self._is_due():
            self._remove_leftovers(full=True)
            self.remove(self._plan(policy).removals)
        usage = self._usage()
        if usage.ratio > policy.full_ratio:
            raise StoreUnavailableError(
                f"the file system of {self._layout.root} is {usage.ratio:.0%} full; above"
                f" {policy.full_ratio:.0%} appends are refused.",
                remedy="Free some space, or shorten how long messages are kept.",
                code="DISK_FULL",
            )

    def _check_fits(self, more: int) -> None:
        if self._free_beyond(more) >= 0:
            return
        self._remove_leftovers(full=True)
        if self._free_beyond(more) < 0:
            files = f"two log files of {format_size(self._log.file_bytes)}"
            rows = f" and {format_size(more)} of messages" if more else ""
            free = format_size(free_bytes(self._layout.commit_log))
            raise StoreUnavailableError(
                f"the file system of {self._layout.commit_log} has {free} free; to append,"
                f" {files}{rows} have to fit.",
                remedy="Free some space: `pyrocket clean` removes the oldest messages, `pyrocket"
                " store set` says how long to keep them.",
                code="DISK_FULL",
            )

    def _free_beyond(self, more: int) -> int:
        """Return the bytes free beyond two log files and `more`; negative if they do not fit."""
        return free_bytes(self._layout.commit_log) - _SPARE_FILES * self._log.file_bytes - more

    def _warn_if_filling(self) -> None:
        usage, root = self._usage(), self._layout.root
        if usage.ratio > _FILLING_RATIO and root not in _warned:
            _warned.add(root)
            _log.warning(
                "the file system of %s is %.0f %% full (%s free), and the store keeps all"
                " messages until it is cleaned: `pyrocket store set` says how long to keep them",
                *(root, 100 * usage.ratio, format_size(usage.total_bytes - usage.used_bytes)),
            )

    def clean(
        self, section: Section, *, hours: float | None, total_bytes: int | None
    ) -> CleanReport:
        """Delete files that exceed the given limits, a few files per section.

        Raises OptionError (RETENTION_MISSING) if neither the limits nor a retention is set.
        """
        self.refresh()
        now, policy = self._clock(), self._policy
        left = planned_by_hand(self._log, policy, now, hours, total_bytes).removals
        report = CleanReport()
        while True:
            with section():
                done = self.remove(left[:_FILES_PER_SECTION])
            report, left = report.then(done), left[len(done.removals) :]
            # A file that is kept keeps all after it, too: the log must not get a gap.
            if done.kept or not left:
                break
        kept = tuple(Kept(one.file, done.kept[0].held_by) for one in left)
        return replace(report, kept=kept)

    def remove(self, removals: Sequence[Removal]) -> CleanReport:
        """Delete log files, which are the log's oldest, and the files that point into them.

        Files with records that a service still needs and cannot re-append are kept.
        """
        removals, kept = hold_back(removals, *self._hooks().held_from())
        if removals:
            for hook in self._hooks().before_removal:
                hook(removals[-1].file.start + self._log.file_bytes)
            # The last messages of a queue have to survive a power loss: otherwise its offsets
            # would start again.
            self._flush()
            self._note_ends(removals[-1].file.start + self._log.file_bytes)
        for removal in removals:
            self._log.run.remove(removal.file.start)
            self._structure_changed()
        log_start = self._log.first_offset()
        queue_files = sum(
            self._queues.get(*key).remove_below(log_start) for key in self._queues.on_disk()
        )
        index_files = self._remove_index_files(log_start)
        if queue_files or index_files:
            self._structure_changed()
        return CleanReport(removals, queue_files, index_files, log_start=log_start, kept=kept)

    def _remove_index_files(self, log_start: int) -> int:
        with damaged_index_stays(self._layout):
            return self._keys.remove_below(log_start)
        return 0

    def _plan(self, policy: Retention) -> CleaningPlan:
        return plan_cleaning(policy, log_files(self._log), self._usage(), self._clock())

    def _remove_leftovers(self, *, full: bool) -> None:
        try:
            for hook in self._hooks().leftovers:
                hook(full)
        except (PyrocketError, OSError) as error:
            _log.warning("unused files in %s are not deleted: %s", self._layout.root, error)

    def _is_full(self, policy: Retention | None) -> bool:
        if policy is None:
            return self._free_beyond(0) < 0
        return self._usage().ratio > policy.full_ratio

    def _usage(self) -> DiskUsage:
        return disk_usage([self._layout.commit_log, self._layout.consume_queues])

    def _is_due(self) -> bool:
        """Whether a check is due; if so, the next one is due INTERVAL_MS later."""
        now, due = self._clock(), self._next_look_ms
        # A clock that was set back must not postpone it for long.
        if due is not None and due - INTERVAL_MS <= now < due:
            return False
        self._next_look_ms = now + INTERVAL_MS
        return True

    def _note_ends(self, log_start: int) -> None:
        """Save the ends of the queues that lose their last message."""
        ends: dict[str, dict[int, int]] = {}
        for topic, queue_id in self._queues.on_disk():
            queue = self._queues.get(topic, queue_id)
            end = queue.max_offset(WHOLE_LOG)
            last = queue.entries(max(end - 1, 0), end)
            if len(last) and last["physical_offset"][0] < log_start:
                ends.setdefault(topic, {})[queue_id] = end
        self._topics.note_all_ends(ends)
