"""Where the valid log ends, found from its bytes alone.

After a clean end the last three files are looked at, as RocketMQ does; after any other, the newest
file that was surely durable before the checkpoint and all behind it. A record counts if its
structure is whole, its body's checksum matches, its topic is legal and its properties don't end
in zeros; the log ends before the first that does not. Source: `CommitLog.recoverNormally`,
`recoverAbnormally`.
"""

import re

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import Checkpoint
from pyrocket.formats.record import CRC_MASK
from pyrocket.formats.record_decode import decode_record, read_store_timestamp
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.runs import crc32_of_runs
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.walk import end_of, walk

_FILES_AFTER_CLEAN_END = 3
_HEAD_BYTES = 96
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")


def recovery_start(log: CommitLog, checkpoint: Checkpoint, *, clean: bool) -> int:
    """Return the start of the first file that has to be looked at."""
    starts = log.run.starts()
    if not starts:
        return log.first_offset()
    if clean:
        return starts[max(0, len(starts) - _FILES_AFTER_CLEAN_END)]
    for start in reversed(starts):
        stored = read_store_timestamp(log.read(start, _HEAD_BYTES))
        if 0 < stored <= checkpoint.safe_timestamp:
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


def valid_end(log: CommitLog, start: int) -> tuple[int, int]:
    """Return where the valid log ends, seen from the file at `start`, and its last store time."""
    starts = log.run.starts()
    limit = starts[-1] + log.file_bytes if starts else start
    end, stored = start, 0
    for run in walk(log, start, limit):
        whole = _whole_records(run)
        if whole:
            last = whole - 1
            end = int(run.base + run.starts[last] + run.sizes[last])
            stored = max(stored, int(run.store_timestamp[:whole].max()))
        if end < end_of(run):
            break
    return end, stored


def _whole_records(run: RecordFields) -> int:
    """Return how many records of the run are good, up to the first that is not."""
    try:
        run.check_structure()
        ends = run.body_start + run.body_length
        crc = crc32_of_runs(run.buffer, run.body_start, ends) & CRC_MASK
        run.demand(crc == run.field("crc"), "checksum mismatch of its body")
        length = run.properties_length
        last = run.data[run.properties_start + length - 1]
        run.demand((length == 0) | (last != 0), "its properties are torn")
        for topic in run.topics().unique().to_pylist():
            _check_topic(topic)
    except StoreDamagedError:
        return _count_whole(run)
    return len(run)


def _count_whole(run: RecordFields) -> int:
    view = memoryview(run.buffer)
    for count, (start, size) in enumerate(
        zip(run.starts.tolist(), run.sizes.tolist(), strict=True)
    ):
        try:
            record = decode_record(view[start : start + size])
            _check_topic(record.topic.encode())
        except StoreDamagedError:
            return count
        # A torn record ends in zeros; properties, which no checksum covers, never do.
        if record.physical_offset != run.base + start or record.properties.endswith(b"\0"):
            return count
    return len(run)


def _check_topic(topic: bytes) -> None:
    if not _TOPIC.fullmatch(topic.decode("ascii", "replace")):
        raise StoreDamagedError(f"{topic!r} is no topic.")
