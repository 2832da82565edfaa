"""What a manual cleaning deletes: a dry run and a real one follow the same rules.

Nothing here locks or writes.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyrocket.arguments import check_amount
from pyrocket.config import Retention, StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.engine.hooks import Hooks
from pyrocket.engine.reader import Reader
from pyrocket.engine.retention_rules import (
    CleaningPlan,
    CleanReport,
    LogFile,
    hold_back,
    plan_by_hand,
)
from pyrocket.errors import OptionError, StoreDamagedError
from pyrocket.formats.index_file import Geometry
from pyrocket.formats.record_decode import read_store_timestamp
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.log.commit_log import CommitLog
from pyrocket.metadata.retention import RetentionFile

_HEAD_BYTES = 96
_log = logging.getLogger(__name__)


def preview(
    layout: Layout, reader: Reader, hooks: Hooks, *, hours: float | None, total_bytes: int | None
) -> CleanReport:
    """Return what a manual cleaning would delete, and what it would keep; takes no lock."""
    log, queues, config = reader.files.log, reader.files.queues, reader.identity.config
    policy = config.retention or RetentionFile(layout).read()
    plan = planned_by_hand(log, policy, reader.clock(), hours, total_bytes)
    removals, kept = hold_back(plan.removals, *hooks.held_from())
    start = removals[-1].file.start + log.file_bytes if removals else log.first_offset()
    growing = hooks.moved_by(start) if removals else set()
    queue_files = (
        queues.get(*key).files_below(start, grows=key in growing) for key in queues.on_disk()
    )
    return CleanReport(
        removals,
        sum(map(len, queue_files)),
        _index_files(layout, config, start),
        dry_run=True,
        log_start=start,
        kept=kept,
    )


def _index_files(layout: Layout, config: StoreConfig, log_start: int) -> int:
    with damaged_index_stays(layout):
        index = KeyIndex(layout, Geometry(config.index_slots, config.index_items))
        return len(index.names_below(log_start))
    return 0


@contextmanager
def damaged_index_stays(layout: Layout) -> Iterator[None]:
    """Log and ignore a damaged index: look-ups report it, and space is freed all the same."""
    try:
        yield
    except StoreDamagedError as error:
        _log.warning("index files of %s are not deleted: %s", layout.root, error)


def check_limits(hours: float | None, total_bytes: int | None) -> None:
    """Raise OptionError if a limit is invalid; both may be None."""
    for name, limit in (("hours", hours), ("total_bytes", total_bytes)):
        check_amount(name, 0 if limit is None else limit)


def planned_by_hand(
    log: CommitLog,
    policy: Retention | None,
    now_ms: int,
    hours: float | None,
    total_bytes: int | None,
) -> CleaningPlan:
    """Return the files that exceed the limits, by default those of the policy.

    Raises OptionError; with the code RETENTION_MISSING if there is no limit at all.
    """
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
    """Return the files of the log that hold messages, oldest first, and when each was closed.

    RocketMQ uses the modification time of a file, which is when the blank record at its end was
    written, with the first message of the next file. The store time of that message is the same,
    and survives copying. The last file is never deleted, so its time does not matter.
    """
    stored = [each for start in log.run.starts() for each in _first_stored(log, start)]
    while stored and not stored[-1][1]:
        stored.pop()  # Preallocated, or damaged.
    files: list[LogFile] = []
    closed = stored[-1][1] if stored else 0
    for start, first in reversed(stored):
        files.append(LogFile(start, log.file_bytes, closed))
        closed = first or closed
    return files[::-1]


def _first_stored(log: CommitLog, start: int) -> list[tuple[int, int]]:
    """Return the file with its first message's store time; empty if it was deleted meanwhile."""
    try:
        return [(start, read_store_timestamp(log.read(start, _HEAD_BYTES)))]
    except FileNotFoundError:
        return []
