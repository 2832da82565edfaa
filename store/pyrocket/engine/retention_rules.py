"""Selects the log files to delete, as RocketMQ does.

Whole files are deleted, oldest first, and never the last one:

- in the hours `at_hours`, or while the disk is fuller than `clean_ratio`: files whose last message
  is older than `hours`;
- while the disk is fuller than `force_ratio`: files of any age, until usage is below it (RocketMQ
  deletes `files_per_run` each time, even if fewer would be enough);
- at any hour, while the log is larger than `total_bytes`: files of any age.

Above `full_ratio` appends are refused (`DiskRoom`).
Source: `DefaultMessageStore.CleanCommitLogService`.
"""

import time
from collections.abc import Iterator, Sequence

from pyrocket.base.config import Retention
from pyrocket.disk.machine import DiskUsage
from pyrocket.values.admin import Kept, LogFile, Removal

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
    ends = [one.file.start + one.file.bytes for one in removals]
    count = next((at for at, end in enumerate(ends) if end > held_from), len(ends))
    kept = (Kept(one.file, held_by) for one in removals[count:])
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
