"""`Store.history`: checks whether saved offsets still refer to the same messages.

A recovery may truncate the log, and a directory may be replaced by an older copy. A caller that
saves offsets of a store, such as the checkpoint of a stream, must also save the store's epoch and a
mark, which identifies a message and shows whether a log still contains it.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from pyrocket.base.arguments import check_numbers, check_offsets, check_text, check_type
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.errors import StoreDamagedError, StorePermissionError
from pyrocket.formats.checksum import crc32
from pyrocket.formats.publish_record import decode_sink_records
from pyrocket.formats.queue_entry import PRE_BLANK_SIZE
from pyrocket.formats.record import (
    FIXED_BYTES,
    HEADER_BYTES,
    HOST_V6_EXTRA,
    SYS_DAMAGED,
    read_store_timestamp,
)
from pyrocket.formats.system_topics import SINK_TOPIC
from pyrocket.index.queues.consume_queue import ConsumeQueue, QueueTable
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk
from pyrocket.metadata.epochs import Epochs
from pyrocket.values.message import LogMark

_HEAD_BYTES = FIXED_BYTES + HOST_V6_EXTRA
_OWN_OFFSET, _SYS_FLAG = slice(28, 36), slice(36, 40)


def newest_mark(log: CommitLog, ends: Iterable[tuple[ConsumeQueue, int]]) -> LogMark | None:
    """Return the mark of the newest message before the given end offset of each queue.

    Reads one entry per queue and one record. Returns None if all these messages have expired.
    """
    offsets = [
        int(entry["physical_offset"])
        for queue, end in ends
        if end > 0
        for entry in queue.entries(end - 1, end)
        if entry["size"] > 0 and entry["size"] != PRE_BLANK_SIZE
    ]
    marks = (mark_at(log, offset) for offset in sorted(offsets, reverse=True))
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


def mark_at(log: CommitLog, offset: int) -> LogMark | None:
    """Return the mark of the record at a log offset, or None without a record."""
    head = _read(log, offset, _HEAD_BYTES) if offset >= 0 else b""
    stored = read_store_timestamp(head)
    if not stored or int.from_bytes(head[_OWN_OFFSET], "big") != offset:
        return None
    return LogMark(offset, stored, crc32(head[:HEADER_BYTES]))


def torn_batch(log: CommitLog, queues: QueueTable, end: int) -> int | None:
    """Return the log offset of the exactly-once batch that continues after `end`, or None.

    A writer publishes a batch as a whole, but a replica receives one record after the other. A
    store of its own must not begin with a part: the query would take it for the batch.
    """
    queue = queues.get(SINK_TOPIC, 0)
    last = queue.max_offset(end)
    for entry in queue.entries(max(last - 1, 0), last):
        at = int(entry["physical_offset"])
        with suppress(StoreDamagedError):  # A placeholder, whose batch is not known.
            for run in walk(log, at, at + int(entry["size"])):
                return next((p.offset for p in decode_sink_records(run) if p.end > end), None)
    return None


def _read(log: CommitLog, offset: int, size: int) -> bytes:
    """Return bytes of the log, empty if the file is missing."""
    try:
        return log.read(offset, size)
    except StorePermissionError:
        raise
    except FileNotFoundError:
        return b""


@translating_methods
class History:
    """The truncations of one store's log. Never locks, never writes."""

    def __init__(self, engine: Engine) -> None:
        self._reader, self._epochs = engine.reader, Epochs(engine.layout)

    @property
    def epoch(self) -> int:
        """The epoch: increases with each recovery that may have truncated the log."""
        return self._epochs.current

    @property
    def recovery_is_interrupted(self) -> bool:
        """Whether a writer died during a recovery. If so, queues end at the log's durable end."""
        return self._reader.bound() == self._reader.interrupted_end() > 0

    def cut_since(self, epoch: int, topic: str, queue_id: int) -> int | None:
        """Return the lowest offset to which recoveries after `epoch` truncated the queue."""
        check_text(topic=topic)
        check_numbers(epoch=epoch, queue_id=queue_id)
        return self._epochs.cut_since(epoch, topic, queue_id)

    def mark(self, offsets: Mapping[str, Mapping[int, int]]) -> LogMark | None:
        """Return the mark of the newest message before {topic: {queue id: next offset}}.

        Before using these offsets again, a caller passes the mark to `holds`. Returns None if all
        messages before the offsets have been deleted. Reads 20 bytes per queue.
        """
        check_offsets(offsets)
        table = self._reader.files.queues
        ends = [
            (table.get(topic, queue_id), end)
            for topic, queues in offsets.items()
            for queue_id, end in queues.items()
        ]
        return newest_mark(self._reader.log, ends)

    def holds(self, mark: LogMark) -> bool | None:
        """Return whether the marked message, and thus the log before it, is unchanged.

        False after the store was restored from an older copy; None if the message was deleted with
        its log file. Reads 88 bytes.
        """
        check_type(LogMark, "Use the result of `Store.history.mark`.", mark=mark)
        return holds(self._reader.log, mark, self._reader.log_end())
