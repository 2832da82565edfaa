"""Log marks: a mark identifies a message and shows whether a log still contains it."""

from collections.abc import Iterable

from pyrocket.errors import StorePermissionError
from pyrocket.formats.checksum import crc32
from pyrocket.formats.queue_entry import PRE_BLANK_SIZE
from pyrocket.formats.record import (
    FIXED_BYTES,
    HEADER_BYTES,
    HOST_V6_EXTRA,
    SYS_DAMAGED,
    read_store_timestamp,
)
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.log.commit_log import CommitLog
from pyrocket.values.message import LogMark

_HEAD_BYTES = FIXED_BYTES + HOST_V6_EXTRA
_OWN_OFFSET, _SYS_FLAG = slice(28, 36), slice(36, 40)


def newest_mark(log: CommitLog, ends: Iterable[tuple[ConsumeQueue, int]]) -> LogMark | None:
    """Return the mark of the newest message before the given end offset of each queue.

    Reads one entry per queue and one record. Returns None if all these messages have expired.
    """
    found = [
        int(entry["physical_offset"])
        for queue, end in ends
        if end > 0
        for entry in queue.entries(end - 1, end)
        if entry["size"] > 0 and entry["size"] != PRE_BLANK_SIZE
    ]
    marks = (_mark_at(log, offset) for offset in sorted(found, reverse=True))
    return next((mark for mark in marks if mark is not None), None)


def holds(log: CommitLog, mark: LogMark, end: int) -> bool | None:
    """Return whether the log, valid up to `end`, contains the marked message at its offset.

    Returns None if that is unknown: the file has expired or is missing, or a repair has replaced
    the message with a placeholder.
    """
    starts, start = log.run.starts(), log.run.start_of(mark.log_offset)
    if starts and start < starts[-1] and start not in starts:
        return None
    if mark.log_offset + HEADER_BYTES > end:
        return False
    head = _read(log, mark.log_offset, HEADER_BYTES)
    is_own = int.from_bytes(head[_OWN_OFFSET], "big") == mark.log_offset
    if is_own and int.from_bytes(head[_SYS_FLAG], "big") & SYS_DAMAGED:
        return None
    return len(head) == HEADER_BYTES and crc32(head) == mark.header_crc


def _mark_at(log: CommitLog, offset: int) -> LogMark | None:
    """Return the mark of the record at a log offset, or None without a record."""
    head = _read(log, offset, _HEAD_BYTES) if offset >= 0 else b""
    stored = read_store_timestamp(head)
    if not stored or int.from_bytes(head[_OWN_OFFSET], "big") != offset:
        return None
    return LogMark(offset, stored, crc32(head[:HEADER_BYTES]))


def _read(log: CommitLog, offset: int, size: int) -> bytes:
    """Return bytes of the log, empty if the file is missing."""
    try:
        return log.read(offset, size)
    except StorePermissionError:
        raise
    except FileNotFoundError:
        return b""
