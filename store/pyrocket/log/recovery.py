"""Where the valid log ends, found from its bytes alone.

After a clean end the last three files are looked at, as RocketMQ does; after any other, the newest
file that was surely durable before the checkpoint and all behind it. A record counts if its
structure is whole, its checksums match, its topic is legal, no sector of its properties is
missing, and it goes on where its queue was; the log ends before the first that does not. Source:
`CommitLog.recoverNormally`, `recoverAbnormally`.
"""

import itertools
import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import Checkpoint
from pyrocket.formats.property_crc import check_crcs
from pyrocket.formats.record import read_header
from pyrocket.formats.record_decode import decode_record, read_store_timestamp
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.sealed_ranges import NOT_SEALED, SealedRanges
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.walk import end_of, run_at, walk, walk_all

_FILES_AFTER_CLEAN_END = 3
_HEAD_BYTES = 96
_SECTOR = 512
_TORN = "its properties are torn"
TRUSTED_WHOLLY = 2**63 - 1

Dense = Callable[[RecordFields], int]
"""Told runs of whole records in log order; says how many of each, the first ones, are dense."""

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")


def recovery_start(log: CommitLog, checkpoint: Checkpoint, *, clean: bool) -> int:
    """Return the start of the first file that has to be looked at.

    After no clean end it begins with a whole record: a log never ends where a file begins.
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


def check_nothing_behind(log: CommitLog, end: int) -> None:
    """Raise StoreDamagedError if a file behind the one with `end` begins with a message.

    After a clean end there is none, so the log is damaged in its middle and must not be cut.
    """
    for start in log.run.starts():
        if start <= end:
            continue
        head = log.read(start, _HEAD_BYTES)
        if read_store_timestamp(head) and int.from_bytes(head[28:36], "big") == start:
            raise StoreDamagedError(
                f"corrupt log: the record at {end} is damaged, but the file that begins at"
                f" {start} holds messages.",
                remedy="Restore the log from a backup; nothing has been changed.",
            )


def valid_end(
    log: CommitLog, start: int, dense: Dense, trusted_ms: int = TRUSTED_WHOLLY
) -> tuple[int, int]:
    """Return where the valid log ends, seen from the file at `start`, and its last store time.

    A record that does not go on in its queue ends it too. Raises StoreDamagedError (QUEUE_GAP) if
    that record was durable for sure, being no younger than `trusted_ms`.
    """
    starts = log.run.starts()
    limit = starts[-1] + log.file_bytes if starts else start
    end, stored = start, 0
    for run in walk(log, start, limit):
        whole = run.head(whole_records(run))
        good = dense(whole) if len(whole) else 0
        if good:
            end = int(run.base + run.starts[good - 1] + run.sizes[good - 1])
            stored = max(stored, int(run.store_timestamp[:good].max()))
        if good < len(whole):
            _check_not_trusted(whole, good, trusted_ms)
        if end < end_of(run):
            break
    return end, stored


def dense_end(log: CommitLog, end: int, dense: Dense, *, trusted_end: int, trusted_ms: int) -> int:
    """Return where the whole log, whose records are whole up to `end`, stops being dense.

    Raises StoreDamagedError (QUEUE_GAP) if that is before `trusted_end`, or in a trusted record.
    """
    for run in walk_all(log, log.first_offset(), end):
        run.check_structure()
        good = dense(run)
        if good < len(run):
            stop = int(run.physical_offset[good])
            _check_not_trusted(run, good, TRUSTED_WHOLLY if stop < trusted_end else trusted_ms)
            return stop
    return end


def _check_not_trusted(run: RecordFields, at: int, trusted_ms: int) -> None:
    if run.store_timestamp[at] <= trusted_ms:
        raise StoreDamagedError(
            f"corrupt log: the record at {int(run.physical_offset[at])}, offset"
            f" {int(run.queue_offset[at])} of queue {int(run.queue_id[at])} of"
            f" {run.topics()[at].as_py().decode()!r}, does not go on where the queue was.",
            remedy="Restore the log from a backup.",
            code="QUEUE_GAP",
        )


def whole_records(run: RecordFields) -> int:
    """Return how many records of the run are good, up to the first that is not."""
    try:
        run.check_structure()
        check_crcs(run)
        length = run.properties_length
        last = run.data[run.properties_start + length - 1]
        run.demand((length == 0) | (last != 0), _TORN)
        run.demand(~_lacks_a_sector(run), _TORN)
        for topic in run.topics().unique().to_pylist():
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
    """Return what is wrong with the record at a log offset; empty if it counts."""
    try:
        record = decode_record(data, sealed=sealed)
        _check_topic(record.topic.encode())
    except StoreDamagedError as error:
        return error.message
    if record.physical_offset != offset:
        return f"it names another place, {record.physical_offset}."
    begin = offset + record.size - len(record.properties)
    return f"{_TORN}." if _is_torn(record.properties, begin) else ""


def _is_torn(properties: bytes, offset: int) -> bool:
    """Whether a sector of properties that lie at a log offset was never written: it is zeros.

    No checksum covers them; neither names nor values fill a sector with zeros or end in one.
    """
    first = _SECTOR - offset % _SECTOR
    bounds = [0, *range(first, len(properties), _SECTOR), len(properties)]
    parts = (properties[low:high] for low, high in itertools.pairwise(bounds))
    return properties.endswith(b"\0") or any(part and not part.strip(b"\0") for part in parts)


def _lacks_a_sector(run: RecordFields) -> npt.NDArray[np.bool_]:
    """Return of each record whether `_is_torn` holds for its properties."""
    begin = run.properties_start + run.base
    torn = np.zeros(len(run), bool)
    # Few properties are so long that a sector ends in them, and hardly any has a zero there.
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
        raise StoreDamagedError(f"{topic!r} is no topic.")
