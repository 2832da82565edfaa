"""Deletes expired log files, and the queue and index files that point into them.

Requires the write lock. Log files are deleted first, oldest first, and each deletion is made
durable before the next: a crash leaves a log that starts later, never a log with a gap. Minimum
offsets are derived from the start of the log, so they move with the first deletion. Queue and index
files that point before it only use space until the next cleaning. In the opposite order a crash
would leave messages without queue entries, which recovery has to treat as damage.

The file with a queue's last entry is never deleted, so that offsets continue when all messages of
the queue have expired. The end of such a queue is saved with the topics beforehand: a queue that is
rebuilt from the log then continues from the saved end.

A manual cleaning and its preview follow the same rules (`_planned_by_hand`). Log files are selected
as by RocketMQ. Whole files are deleted, oldest first, and never the last one:

- in the hours `at_hours`, or while the disk is fuller than `clean_ratio`: files whose last message
  is older than `hours`;
- while the disk is fuller than `force_ratio`: files of any age, until usage is below it (RocketMQ
  deletes `files_per_run` each time, even if fewer would be enough);
- at any hour, while the log is larger than `total_bytes`: files of any age.

Above `full_ratio` appends are refused (`DiskRoom`). Source:
`DefaultMessageStore.CleanCommitLogService`.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

from pyrocket.base.arguments import format_size
from pyrocket.base.clock import Clock
from pyrocket.base.config import Retention
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import Layout
from pyrocket.disk.machine import DiskUsage
from pyrocket.engine.disk_room import DiskRoom
from pyrocket.engine.hooks import Hooks
from pyrocket.engine.reader import Reader
from pyrocket.engine.recovery import StoreParts
from pyrocket.errors import OptionError, PyrocketError, StoreDamagedError
from pyrocket.formats.index_file import Geometry
from pyrocket.formats.system_topics import CLOSED_TO_SENDERS, SYSTEM_PREFIX
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.log.commit_log import CommitLog
from pyrocket.metadata.retention import RetentionFile
from pyrocket.values.admin import CleanReport, Kept, LogFile, Removal

_HOUR_MS = 3_600_000

EXPIRED, TOTAL_BYTES, DISK = "expired", "total bytes", "disk"
"""The reasons for which a file is deleted."""


def plan_cleaning(
    policy: Retention, files: Sequence[LogFile], disk: DiskUsage, now_ms: int
) -> tuple[Removal, ...]:
    """Return the files that an automatic cleaning deletes now; `files` are all, oldest first."""
    oldest = files[:-1][: policy.files_per_run]
    may_expire = disk.ratio > policy.clean_ratio or local_hour(now_ms) in policy.at_hours
    hours = policy.hours if may_expire else None
    expired = _expired(oldest, hours, now_ms)
    beyond = _beyond(files, oldest, policy.total_bytes)
    for_space = _until_free(oldest, disk.excess_over(policy.force_ratio))
    return tuple(_join(oldest, {EXPIRED: expired, TOTAL_BYTES: beyond, DISK: for_space}))


def bytes_for_space(policy: Retention, files: Sequence[LogFile], disk: DiskUsage) -> int:
    """Return the bytes of the files that a policy deletes because the disk is too full."""
    count = _until_free(files[:-1], disk.excess_over(policy.force_ratio))
    return sum(file.bytes for file in files[:count])


def plan_by_hand(
    files: Sequence[LogFile], now_ms: int, *, hours: float | None, total_bytes: int | None
) -> tuple[Removal, ...]:
    """Return the files that a manual cleaning deletes, at any hour and any number of them."""
    oldest = files[:-1]
    expired = _expired(oldest, hours, now_ms)
    beyond = _beyond(files, oldest, total_bytes)
    return tuple(_join(oldest, {EXPIRED: expired, TOTAL_BYTES: beyond}))


def hold_back(
    removals: Sequence[Removal], held_from: int, held_by: str
) -> tuple[tuple[Removal, ...], tuple[Kept, ...]]:
    """Split the log's oldest files into files to delete and files to keep.

    A file is kept if it contains a record at or after log offset `held_from`; `held_by` describes
    these records.
    """
    ends = [removal.file.start + removal.file.bytes for removal in removals]
    count = next((at for at, end in enumerate(ends) if end > held_from), len(ends))
    kept = (Kept(removal.file, held_by) for removal in removals[count:])
    return tuple(removals[:count]), tuple(kept)


def local_hour(now_ms: int) -> int:
    """Return the hour of the day in the local time zone, which RocketMQ's deleteWhen uses."""
    return time.localtime(now_ms / 1000).tm_hour


def _expired(files: Sequence[LogFile], hours: float | None, now_ms: int) -> int:
    """Return the number of expired files before the first file that has not expired."""
    if hours is None:
        return 0
    kept = (at for at, file in enumerate(files) if file.closed_ms + hours * _HOUR_MS > now_ms)
    return next(kept, len(files))


def _beyond(files: Sequence[LogFile], oldest: Sequence[LogFile], limit: int | None) -> int:
    """Return the number of oldest files to delete so that the log has at most `limit` bytes."""
    return 0 if limit is None else _until_free(oldest, sum(file.bytes for file in files) - limit)


def _until_free(files: Sequence[LogFile], wanted: int) -> int:
    """Return the number of oldest files to delete to free `wanted` bytes."""
    count = 0
    while wanted > 0 and count < len(files):
        wanted -= files[count].bytes
        count += 1
    return count


def _join(files: Sequence[LogFile], counts: dict[str, int]) -> Iterator[Removal]:
    """Yield the files to delete, each with the first reason that applies."""
    for at, file in enumerate(files):
        reason = next((reason for reason, count in counts.items() if at < count), None)
        if reason is None:
            return
        yield Removal(file, reason)


INTERVAL_MS = 10_000
"""RocketMQ's cleanResourceInterval: the minimum time between two checks of a writer."""

_BUSY_MS = 1000
_FILLING_RATIO = 0.90
_MAX_REFUSED_BYTES = 4 << 20
"""Smaller messages may fit, although a larger batch was refused."""

_warned: set[Path] = set()
"""Stores for which this process has logged that the disk is nearly full."""

_FILES_PER_SECTION = 10
_log = logging.getLogger(__name__)

_Section = Callable[[], AbstractContextManager[None]]
"""Returns a context manager that holds the write lock."""


class Cleaner:
    """Cleans one store that is open for writing; without a retention, only on request."""

    def __init__(
        self,
        store: StoreParts,
        clock: Clock,
        room: DiskRoom,
        retention: Callable[[], Retention | None],
        flush: Callable[[], None],
        hooks: Callable[[], Hooks],
    ) -> None:
        """`retention` returns the policy in effect, `flush` flushes the log."""
        self._hooks, self._clock, self._retention = hooks, clock, retention
        self._room = room
        self._layout, self._log, self._queues = store.layout, store.log, store.queues
        self._keys, self._topics = store.keys, store.topics
        self._structure_changed = store.structure_changed
        self._policy = retention()
        self._flush = flush
        self._next_look_ms: int | None = None
        self._refused_bytes = 0

    def refresh(self) -> None:
        """Reload the retention. Raises StoreDamagedError."""
        self._policy = self._retention()

    def run_if_due(self, section: _Section) -> None:
        """Delete expired files; checks at most every INTERVAL_MS. Never raises.

        `section` must not wait for the lock: while another process writes, cleaning is postponed.
        """
        if not self._is_due():
            return
        try:
            self.refresh()
            policy = self._policy
            self._remove_leftovers(full=self._room.is_full(policy))
            if policy is None:
                self._warn_if_filling()
            elif self._plan(policy):
                with section():
                    self.remove(self._plan(policy))
            self._room.restore_reserve()
        except (PyrocketError, OSError) as error:
            self._next_look_ms = self._clock() + _BUSY_MS
            if getattr(error, "code", "") != "LOCK_TIMEOUT":
                _log.warning("%s was not cleaned: %s", self._layout.root, error)

    def make_room(self, more: int = 0) -> None:
        """Raise StoreUnavailableError (DISK_FULL) if `more` bytes of records must not be appended.

        With a retention, RocketMQ's disk usage ratios apply, and expired files are deleted first.
        Without a retention, the disk must have room for two more log files and `more`.
        """
        policy = self._policy
        if policy is None:
            self._refused_bytes = 0
            if not self._room.fits(more):
                self._remove_leftovers(full=True)
                self._refused_bytes = min(more, _MAX_REFUSED_BYTES)
                self._room.check_fits(more)
        elif self._room.is_full(policy):
            self._clean_full(policy)

    @property
    def is_full(self) -> bool:
        """Whether the last append that was refused would be refused now; nothing is cleaned."""
        return self._room.is_full(self._policy, self._refused_bytes)

    def _clean_full(self, policy: Retention) -> None:
        if self._is_due():
            self._remove_leftovers(full=True)
            self.remove(self._plan(policy))
        self._room.check_ratio(policy)

    def _warn_if_filling(self) -> None:
        usage, root = self._room.usage(), self._layout.root
        if usage.ratio > _FILLING_RATIO and root not in _warned:
            _warned.add(root)
            _log.warning(
                "the file system of %s is %.0f %% full (%s free), and the store keeps all"
                " messages until it is cleaned: `pyrocket store retention` sets how long to keep"
                " them",
                *(root, 100 * usage.ratio, format_size(usage.total_bytes - usage.used_bytes)),
            )

    def clean(
        self, section: _Section, *, hours: float | None, total_bytes: int | None
    ) -> CleanReport:
        """Delete files that exceed the given limits, a few files per section.

        Raises OptionError (RETENTION_MISSING) if neither the limits nor a retention is set.
        """
        self.refresh()
        now, policy = self._clock(), self._policy
        left = _planned_by_hand(self._log, policy, now, hours, total_bytes)
        before = _minima(self._queues, self._log.first_offset())
        report = CleanReport()
        while True:
            with section():
                done = self.remove(left[:_FILES_PER_SECTION])
            report, left = report.then(done), left[len(done.removals) :]
            # A file that is kept also keeps all later files: the log must not have a gap.
            if done.kept or not left:
                break
        kept = tuple(Kept(removal.file, done.kept[0].held_by) for removal in left)
        messages = _count(before, _minima(self._queues, report.log_start))
        return replace(report, kept=kept, messages=messages)

    def remove(self, removals: Sequence[Removal]) -> CleanReport:
        """Delete the log's oldest files, and the queue and index files that point into them.

        Files with records that a service still needs and cannot re-append are kept.
        """
        removals, kept = hold_back(removals, *self._hooks().held_from())
        log_start = self._log.first_offset()
        if removals:
            log_start = max(log_start, removals[-1].file.start + self._log.file_bytes)
            for hook in self._hooks().before_removal:
                hook(log_start)
            # The last messages of a queue must survive a power loss: otherwise its offsets would be
            # assigned again.
            self._flush()
        expired = self._expired_files(log_start)
        for removal in removals:
            self._log.run.remove(removal.file.start)
            self._structure_changed()
        for run, start in expired:
            run.remove(start)
        queue_files = len(expired)
        index_files = _unless_damaged(
            self._layout, lambda: self._keys.index.remove_below(log_start)
        )
        if queue_files or index_files:
            self._structure_changed()
        return CleanReport(removals, queue_files, index_files, log_start=log_start, kept=kept)

    def _plan(self, policy: Retention) -> tuple[Removal, ...]:
        return plan_cleaning(policy, log_files(self._log), self._room.usage(), self._clock())

    def _remove_leftovers(self, *, full: bool) -> None:
        try:
            for hook in self._hooks().leftovers:
                hook(full)
        except (PyrocketError, OSError) as error:
            _log.warning("unused files in %s are not deleted: %s", self._layout.root, error)

    def _is_due(self) -> bool:
        """Whether a check is due; if so, the next check is due INTERVAL_MS later."""
        now, due = self._clock(), self._next_look_ms
        # A clock that was set back must not postpone the check for long.
        if due is not None and due - INTERVAL_MS <= now < due:
            return False
        self._next_look_ms = now + INTERVAL_MS
        return True

    def _expired_files(self, log_start: int) -> list[tuple[FileQueue, int]]:
        """Return the queue files to delete; save the ends of queues that lose all messages."""
        ends: dict[str, dict[int, int]] = {}
        expired: list[tuple[FileQueue, int]] = []
        for topic, queue_id in self._queues.on_disk():
            queue = self._queues.get(topic, queue_id)
            expired += [(queue.run, start) for start in queue.files_below(log_start)]
            end = queue.max_offset(WHOLE_LOG)
            last = queue.entries(max(end - 1, 0), end)
            if len(last) and last["physical_offset"][0] < log_start:
                ends.setdefault(topic, {})[queue_id] = end
        self._topics.save_ends(ends)
        return expired


def preview(
    layout: Layout, reader: Reader, hooks: Hooks, *, hours: float | None, total_bytes: int | None
) -> CleanReport:
    """Return the report of a manual cleaning without deleting files; takes no lock."""
    log, queues, config = reader.files.log, reader.files.queues, reader.identity.config
    policy = config.retention or RetentionFile(layout).read()
    plan = _planned_by_hand(log, policy, reader.clock(), hours, total_bytes)
    removals, kept = hold_back(plan, *hooks.held_from())
    start = removals[-1].file.start + log.file_bytes if removals else log.first_offset()
    index = KeyIndex(layout, Geometry(config.index_slots, config.index_items))
    growing = hooks.moved_by(start) if removals else set()
    queue_files = (
        queues.get(*key).files_below(start, grows=key in growing) for key in queues.on_disk()
    )
    return CleanReport(
        removals,
        sum(map(len, queue_files)),
        _unless_damaged(layout, lambda: len(index.names_below(start))),
        dry_run=True,
        log_start=start,
        kept=kept,
        messages=_count(_minima(queues, log.first_offset()), _minima(queues, start)),
        disk_bytes=bytes_for_space(
            policy or Retention(), log_files(log), DiskRoom(layout, log.file_bytes).usage()
        ),
    )


def _minima(queues: QueueTable, log_start: int) -> dict[tuple[str, int], int]:
    """Return the minimum offset by queue for a log start; not of services and damaged queues."""
    minima = {}
    for topic, queue_id in queues.on_disk():
        if topic not in CLOSED_TO_SENDERS and not topic.lower().startswith(SYSTEM_PREFIX):
            queue = queues.get(topic, queue_id)
            with suppress(StoreDamagedError):
                end = queue.max_offset(WHOLE_LOG)
                minima[topic, queue_id] = queue.min_offset(log_start, end)
    return minima


def _count(before: Mapping[tuple[str, int], int], after: Mapping[tuple[str, int], int]) -> int:
    """Return the number of messages between two minimum offsets of each queue."""
    return sum(after[key] - minimum for key, minimum in before.items() if key in after)


def _unless_damaged(layout: Layout, count: Callable[[], int]) -> int:
    """Return a number of index files; 0 if the index is damaged, so that cleaning continues."""
    try:
        return count()
    except StoreDamagedError as error:  # Look-ups report it.
        _log.warning("index files of %s are not deleted: %s", layout.root, error)
        return 0


def _planned_by_hand(
    log: CommitLog,
    policy: Retention | None,
    now_ms: int,
    hours: float | None,
    total_bytes: int | None,
) -> tuple[Removal, ...]:
    """Return the files beyond the limits, or the policy's. Raises OptionError."""
    if hours is None and total_bytes is None and policy is not None:
        hours, total_bytes = policy.hours, policy.total_bytes
    if hours is None and total_bytes is None:
        raise OptionError(
            "no retention limit was given.",
            remedy="Give hours, total_bytes, or both.",
            code="RETENTION_MISSING",
        )
    return plan_by_hand(log_files(log), now_ms, hours=hours, total_bytes=total_bytes)


def log_files(log: CommitLog) -> list[LogFile]:
    """Return the log files that contain messages, oldest first, with their closing times.

    RocketMQ uses a file's modification time: the time when the blank record at its end was written,
    together with the first message of the next file. The store time of that message is the same,
    and does not change when files are copied. The last file is never deleted, so its time does not
    matter.
    """
    stored = []
    for start in log.run.starts():
        with suppress(FileNotFoundError):  # It has been deleted in the meantime.
            stored.append((start, log.stored_at(start)))
    while stored and not stored[-1][1]:
        stored.pop()  # Preallocated, or damaged.
    files: list[LogFile] = []
    closed = stored[-1][1] if stored else 0
    for start, first in reversed(stored):
        files.append(LogFile(start, log.file_bytes, closed))
        closed = first or closed
    return files[::-1]
