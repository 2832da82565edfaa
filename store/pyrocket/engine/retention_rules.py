"""Which log files have to go, and whether there is room for more: RocketMQ's rules, decided purely.

Files go from the oldest on, whole, and never the last one:

- in the hours `at_hours`, or while the disk is fuller than `clean_ratio`, those whose last message
  is older than `hours`;
- while the disk is fuller than `force_ratio`, whatever their age, until enough has gone to bring
  it below (RocketMQ takes `files_per_run` each time, however few would do);
- whatever the hour, while the files hold more than `total_bytes`.

Above `full_ratio` appends are refused. Source: `DefaultMessageStore.CleanCommitLogService`.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pyrocket.config import Retention
from pyrocket.disk.machine import DiskUsage

_HOUR_MS = 3_600_000

EXPIRED, TOTAL_BYTES, DISK = "expired", "total bytes", "disk"
"""Why a file goes."""


@dataclass(frozen=True)
class LogFile:
    """One file of the log, and when the next was begun, in epoch milliseconds."""

    start: int
    bytes: int
    closed_ms: int


@dataclass(frozen=True)
class Removal:
    """A file that goes, and why."""

    file: LogFile
    reason: str


@dataclass(frozen=True)
class Kept:
    """A file that would have to go, and what holds it, or one before it."""

    file: LogFile
    held_by: str


@dataclass(frozen=True)
class CleaningPlan:
    """Files that go now, oldest first, and whether the disk is too full for appends."""

    removals: tuple[Removal, ...] = ()
    refuse_appends: bool = False


@dataclass(frozen=True)
class CleanReport:
    """What a cleaning removed or, with `dry_run`, would remove; the queues follow the log.

    kept: files beyond the limits that stay for now, in the order of the log.
    staged_files, staged_bytes: of rows that were staged for a sink and not published in a week.
    """

    removals: tuple[Removal, ...] = ()
    queue_files: int = 0
    index_files: int = 0
    dry_run: bool = False
    log_start: int = field(default=0)
    staged_files: int = 0
    staged_bytes: int = 0
    kept: tuple[Kept, ...] = ()

    def then(self, later: "CleanReport") -> "CleanReport":
        """Return what both removed; what stays is the later one's."""
        return replace(
            later,
            removals=self.removals + later.removals,
            queue_files=self.queue_files + later.queue_files,
            index_files=self.index_files + later.index_files,
        )

    @property
    def bytes(self) -> int:
        """Bytes of the log files."""
        return sum(removal.file.bytes for removal in self.removals)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the log files that stay though they are beyond the limits."""
        return sum(one.file.bytes for one in self.kept)


def plan_cleaning(
    policy: Retention, files: Sequence[LogFile], disk: DiskUsage, now_ms: int
) -> CleaningPlan:
    """Decide for a store that cleans itself; `files` are all of the log, oldest first."""
    oldest = files[:-1][: policy.files_per_run]
    may_expire = disk.ratio > policy.clean_ratio or local_hour(now_ms) in policy.at_hours
    hours = policy.hours if may_expire else None
    expired = _expired(oldest, hours, now_ms)
    beyond = _beyond(files, oldest, policy.total_bytes)
    in_the_way = _until_free(oldest, disk.excess_over(policy.force_ratio))
    removals = _join(oldest, {EXPIRED: expired, TOTAL_BYTES: beyond, DISK: in_the_way})
    return CleaningPlan(tuple(removals), disk.ratio > policy.full_ratio)


def plan_by_hand(
    files: Sequence[LogFile], now_ms: int, *, hours: float | None, total_bytes: int | None
) -> CleaningPlan:
    """Decide for a user who names the limits: at any hour, and all files at once."""
    oldest = files[:-1]
    expired = _expired(oldest, hours, now_ms)
    beyond = _beyond(files, oldest, total_bytes)
    return CleaningPlan(tuple(_join(oldest, {EXPIRED: expired, TOTAL_BYTES: beyond})))


def hold_back(
    removals: Sequence[Removal], held_from: int, held_by: str
) -> tuple[tuple[Removal, ...], tuple[Kept, ...]]:
    """Return what may go of the log's oldest files, and what stays for what lies at `held_from`."""
    ends = [one.file.start + one.file.bytes for one in removals]
    count = next((at for at, end in enumerate(ends) if end > held_from), len(ends))
    kept = (Kept(one.file, held_by) for one in removals[count:])
    return tuple(removals[:count]), tuple(kept)


def local_hour(now_ms: int) -> int:
    """Return the hour of the day in the local time zone, as RocketMQ's deleteWhen means it."""
    return time.localtime(now_ms / 1000).tm_hour


def _expired(files: Sequence[LogFile], hours: float | None, now_ms: int) -> int:
    """Return how many of the oldest files have expired: the first that has not ends it."""
    if hours is None:
        return 0
    kept = (at for at, file in enumerate(files) if file.closed_ms + hours * _HOUR_MS > now_ms)
    return next(kept, len(files))


def _beyond(files: Sequence[LogFile], oldest: Sequence[LogFile], limit: int | None) -> int:
    """Return how many of the oldest have to go for all files to hold at most `limit` bytes."""
    return 0 if limit is None else _until_free(oldest, sum(file.bytes for file in files) - limit)


def _until_free(files: Sequence[LogFile], wanted: int) -> int:
    """Return how many of the oldest files it takes to free the bytes wanted."""
    count = 0
    while wanted > 0 and count < len(files):
        wanted -= files[count].bytes
        count += 1
    return count


def _join(files: Sequence[LogFile], counts: dict[str, int]) -> Iterator[Removal]:
    """Yield each file that goes by any rule, with the first rule that says so."""
    for at, file in enumerate(files):
        reason = next((reason for reason, count in counts.items() if at < count), None)
        if reason is None:
            return
        yield Removal(file, reason)
