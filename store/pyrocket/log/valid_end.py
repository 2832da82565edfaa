"""Finds the end of the valid log from its bytes alone.

After a clean shutdown, recovery reads the last three files, as RocketMQ does. After an unclean one
it starts at the newest file that was certainly durable at the checkpoint. A record is valid if its
structure and checksums are right, its topic is legal, no sector of its properties is missing, and
its queue offset continues its queue. The log ends before the first invalid record; `salvage`
handles the bytes after it. Source: `CommitLog.recoverNormally`, `recoverAbnormally`.

`read_checkpoint` reads the file `checkpoint`: the times up to which the log and its indexes are
durable. `is_cut` checks from the last bytes of a single file whether it was truncated.
"""

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyrocket.base.config import MAX_BODY_BYTES
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.errors import KEEP_WHAT_FOLLOWS, StoreDamagedError
from pyrocket.formats.checkpoint import Checkpoint, decode_checkpoint
from pyrocket.formats.properties import MAX_PROPERTIES_BYTES
from pyrocket.formats.record import (
    BLANK_BYTES,
    HEADER_BYTES,
    MAX_TOPIC_BYTES,
    find_record,
    follow,
    read_header,
    read_store_timestamp,
)
from pyrocket.formats.record_crc import check_crcs
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import NOT_SEALED, RecordFields, SealedRanges
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import end_of, run_at, walk, walk_all

_FILES_AFTER_CLEAN_END = 3
_HEAD_BYTES = 96
_SECTOR = 512
_TORN = "its properties are torn"
TRUSTED_WHOLLY = 2**63 - 1

Dense = Callable[[RecordFields], int]
"""Called with runs of complete records in log order. Returns the number of leading records that
continue their queues without a gap."""

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")


def recovery_start(log: CommitLog, checkpoint: Checkpoint, *, clean: bool) -> int:
    """Return the start of the first file that recovery has to read.

    After an unclean shutdown this file starts with a complete record: a log never ends at the start
    of a file.
    """
    starts = log.run.starts()
    if not starts:
        return log.first_offset()
    if clean:
        return starts[max(0, len(starts) - _FILES_AFTER_CLEAN_END)]
    for start in reversed(starts):
        head = log.read(start, _HEAD_BYTES)
        if 0 < read_store_timestamp(head) <= checkpoint.safe_timestamp:
            run, _ = run_at(log, start, min(start + read_header(head).size, log.file_end(start)))
            if run is not None and whole_records(run):
                return start
    return starts[0]


@dataclass(frozen=True)
class Durable:
    """The records that were certainly durable: below log offset `end`, or stored by `time_ms`.

    Records stored before `since_ms` are not durable by their time. Store times never decrease along
    a log; such a record is left over from an earlier log that a Java broker truncated without
    overwriting it.
    """

    end: int = 0
    time_ms: int = TRUSTED_WHOLLY
    since_ms: int = 0

    def cover(self, run: RecordFields) -> npt.NDArray[np.bool_]:
        """Return for each record of a run whether it was durable."""
        stored = run.store_timestamp
        by_time = (self.since_ms <= stored) & (stored <= self.time_ms)
        return by_time | (run.physical_offset < self.end)


ALL_DURABLE = Durable()


def valid_end(
    log: CommitLog, start: int, dense: Dense, durable: Durable = ALL_DURABLE
) -> tuple[int, int]:
    """Return the end of the valid log from the file at `start` on, and its last store time (ms).

    The log also ends before a record that does not continue its queue. Raises StoreDamagedError
    (QUEUE_GAP) if that record was durable.
    """
    starts = log.run.starts()
    limit = starts[-1] + log.file_bytes if starts else start
    end, stored = start, 0
    for run in walk(log, start, limit):
        whole = run.head(whole_records(run))
        good = dense(whole) if len(whole) else 0
        if good:
            end = end_of(run.head(good))
            stored = max(stored, int(run.store_timestamp[:good].max()))
        if good < len(whole):
            _check_may_go(whole, good, durable)
        if end < end_of(run):
            break
    return end, stored


def dense_end(log: CommitLog, end: int, dense: Dense, start: int, durable: Durable) -> int:
    """Return the offset of the first record that does not continue its queue, or `end` if none.

    Reads the whole log up to `end`; its records must be complete. Raises StoreDamagedError
    (QUEUE_GAP) if that record was durable, as all records before `start` were.
    """
    for run in walk_all(log, log.first_offset(), end):
        run.check_structure()
        good = dense(run)
        if good < len(run):
            stop = int(run.physical_offset[good])
            _check_may_go(run, good, ALL_DURABLE if stop < start else durable)
            return stop
    return end


def _check_may_go(run: RecordFields, at: int, durable: Durable) -> None:
    if durable.cover(run)[at]:
        raise StoreDamagedError(
            f"corrupt log: the record at {int(run.physical_offset[at])}, offset"
            f" {int(run.queue_offset[at])} of queue {int(run.queue_id[at])} of"
            f" {run.topics[at].as_py().decode()!r}, does not continue its queue.",
            remedy=KEEP_WHAT_FOLLOWS,
            code="QUEUE_GAP",
        )


def whole_records(run: RecordFields) -> int:
    """Return the number of valid records at the start of the run."""
    try:
        run.check_structure()
        check_crcs(run)
        length = run.properties_length
        last = run.data[run.properties_start + length - 1]
        run.demand((length == 0) | (last != 0), _TORN)
        run.demand(~_lacks_a_sector(run), _TORN)
        for topic in run.topics.unique().to_pylist():
            _check_topic(topic)
    except StoreDamagedError:
        return _count_whole(run)
    return len(run)


def _count_whole(run: RecordFields) -> int:
    view = memoryview(run.buffer)
    bounds = zip(run.starts.tolist(), run.sizes.tolist(), strict=True)
    faults = (
        record_fault(view[start : start + size], run.base + start, run.sealed())
        for start, size in bounds
    )
    return next((count for count, fault in enumerate(faults) if fault), len(run))


def record_fault(data: memoryview, offset: int, sealed: SealedRanges = NOT_SEALED) -> str:
    """Return the fault of the record at a log offset; empty if the record is valid."""
    try:
        record = decode_record(data, sealed=sealed)
        _check_topic(record.topic.encode())
    except StoreDamagedError as error:
        return error.message
    if record.physical_offset != offset:
        return f"it has another physical offset, {record.physical_offset}."
    begin = offset + record.size - len(record.properties)
    return f"{_TORN}." if _is_torn(record.properties, begin) else ""


def _is_torn(properties: bytes, offset: int) -> bool:
    """Whether a sector of the properties at a log offset is zeros because it was never written.

    No checksum covers the properties. Valid names and values never fill a sector with zeros, and
    never end in a zero byte.
    """
    first = _SECTOR - offset % _SECTOR
    bounds = [0, *range(first, len(properties), _SECTOR), len(properties)]
    parts = (properties[low:high] for low, high in itertools.pairwise(bounds))
    return properties.endswith(b"\0") or any(part and not part.strip(b"\0") for part in parts)


def _lacks_a_sector(run: RecordFields) -> npt.NDArray[np.bool_]:
    """Return for each record whether its properties are torn, as `_is_torn` does."""
    begin = run.properties_start + run.base
    torn = np.zeros(len(run), bool)
    # Few properties are long enough to cross a sector, and hardly any has a zero at its start.
    rows, bound = np.arange(len(run)), begin
    end = begin + run.properties_length
    while len(rows := rows[bound[rows] < end[rows]]):
        for row in rows[run.data[bound[rows] - run.base] == 0].tolist():
            low, high = int(begin[row]), int(end[row])
            torn[row] |= _is_torn(bytes(run.data[low - run.base : high - run.base]), low)
        bound = bound - bound % _SECTOR + _SECTOR
    return torn


def _check_topic(topic: bytes) -> None:
    if not _TOPIC.fullmatch(topic.decode("ascii", "replace")):
        raise StoreDamagedError(f"{topic!r} is not a legal topic name.")


_GLANCE_BYTES = 4096
_LONGEST = HEADER_BYTES + MAX_BODY_BYTES + MAX_PROPERTIES_BYTES + MAX_TOPIC_BYTES
_TAIL_BYTES = 2 * _LONGEST
"""The last bytes of a file, this many, contain a complete record unless its first is truncated."""


def is_cut(path: Path, start: int) -> bool:
    """Whether a file of the log, with start offset `start`, is truncated.

    A record never straddles files, and a blank record ends at the end of its file. If the last
    record ends after the end of the file, the file was truncated. A file that ends in zeros is
    complete: nothing was lost. Reads only 4 KiB of most files.
    """
    with os.fdopen(io.open_file(path, os.O_RDONLY), "rb") as file:
        length = file.seek(0, 2)
        file.seek(max(0, length - _GLANCE_BYTES))
        if not file.read().strip(b"\0"):
            return False
        base = max(0, length - _TAIL_BYTES)
        file.seek(base)
        tail = memoryview(file.read())
    at = 0 if base == 0 else find_record(tail, start + base)
    if at < 0:
        return False
    at = follow(tail, at)[1]
    if at + BLANK_BYTES > len(tail):
        return True
    header = read_header(tail, at)
    return (header.is_message or header.is_blank) and at + header.size > len(tail)


def read_checkpoint(layout: Layout) -> Checkpoint:
    """Return the lower of each time in RocketMQ's file and in our copy; zeros if there is no file.

    When our lock refuses a Java broker, the broker has already rewritten RocketMQ's file, with the
    times of messages that it did not make durable. Our copy still holds the lower times.
    """
    shared = decode_checkpoint(io.read_or_none(layout.checkpoint, io.SMALL_FILE_BYTES) or b"")
    own = io.read_or_none(layout.own_checkpoint, io.SMALL_FILE_BYTES)
    return shared if own is None else shared.least(decode_checkpoint(own))
