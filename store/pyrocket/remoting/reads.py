"""Reads planned ranges as slices, at brokers or their slaves; resumes after lost connections."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from pyrocket.base.clock import Pauses
from pyrocket.errors import PyrocketError, TransportError
from pyrocket.filters.message_filter import EVERYTHING, MessageFilter, ScanTally
from pyrocket.formats.record_columns import SEVERAL_QUEUES
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.remoting.calls import Ask, ResponseCode
from pyrocket.remoting.cluster import LAST_PAUSE_S, RocketMQCluster
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.pulls import PullSettings, Window, windows
from pyrocket.remoting.records import record_fields, selected
from pyrocket.remoting.requests import pull
from pyrocket.values.message import QueueRange

_SLICE_BYTES = 1 << 20
"""Windows are joined to slices of this size, because each slice has a fixed cost."""

_TOGETHER_BYTES = 8 << 20
"""Larger ranges are read one after the other."""


_LACKING = "TOPIC_NOT_FOUND", "GROUP_NOT_FOUND", "BROKER_REFUSED", "BROKER_FAILED"
"""What a slave answers that lacks a topic, a group or a queue."""


def read_range(
    server: ConnectionPool,
    part: QueueRange,
    settings: PullSettings,
    *,
    where: MessageFilter = EVERYTHING,
    tally: ScanTally | None = None,
) -> Iterator[RecordSlice]:
    """Yield the messages of a range that match `where`, in order, in slices of about 1 MiB.

    tally: Counts the messages that were examined before each slice, so that a caller can resume
        after a TransportError. Messages that the queue does not have, for example after a
        compaction, count as examined.

    Raises the errors of `windows`, RecordDamagedError, UnsupportedError (UNSUPPORTED_RECORD).
    """
    tally = tally or ScanTally()
    with closing(windows(server, part, settings)) as parts:
        for joined in _joined(parts):
            examined = joined[-1].end - joined[0].start
            fields = selected(record_fields(part.queue, joined), where, tally, examined)
            if len(fields):
                yield RecordSlice(part.queue, fields)


def _joined(parts: Iterable[Window]) -> Iterator[list[Window]]:
    """Yield consecutive windows that have about `_SLICE_BYTES` together; all before an error."""
    joined, size, failure = list[Window](), 0, None
    try:
        for window in parts:
            joined.append(window)
            size += sum(map(len, window.records))
            if size >= _SLICE_BYTES:
                yield joined
                joined, size = [], 0
    except PyrocketError as error:
        failure = error
    if joined:
        yield joined
    if failure is not None:
        raise failure


def read_anywhere(
    cluster: RocketMQCluster,
    left: QueueRange,
    settings: PullSettings,
    seconds: float,
    where: MessageFilter,
    tally: ScanTally,
) -> Iterator[RecordSlice]:
    """Yield the messages of a range that match `where`, from the master or its slaves.

    Raises TransportError after `seconds` without progress, and the errors of `read_range`.
    """
    broker, pauses = left.queue.broker, Pauses(seconds, last=LAST_PAUSE_S)
    while left.rows:
        before, pool = tally.entries, None
        try:
            pool = cluster.pool(broker, seconds, reads=True)
            yield from read_range(pool, left, settings, where=where, tally=tally)
            cluster.read_at(broker, pool.suggested_id)
        except PyrocketError as error:
            at_slave = pool is not None and pool.broker_id
            if not (isinstance(error, TransportError) or (at_slave and error.code in _LACKING)):
                raise
            cluster.lost(broker, reads=True)
            settings = replace(settings, stays=bool(at_slave))
            is_final = error.code != TransportError.default_code and not at_slave
            if tally.entries == before and (is_final or not pauses.wait()):
                if isinstance(error, TransportError):
                    raise
                remedy = "A slave copies the topics of its master every ten seconds: see its log."
                raise TransportError(error.message, remedy=remedy, repeat_is_safe=True) from None
        if tally.entries > before:
            left = replace(left, start=left.start + tally.entries - before)
            pauses = Pauses(seconds, last=LAST_PAUSE_S)


def read_together(
    ranges: Sequence[QueueRange],
    ask: Ask,
    settings: PullSettings,
    where: MessageFilter,
    tally: ScanTally,
) -> RecordSlice | None:
    """Return the messages of small ranges of one topic that match `where`, in this order.

    Each flight pulls from all queues that are not done. Returns None if the ranges are too large
    together, or if a queue makes no progress or no longer has the messages.

    Raises RecordDamagedError, UnsupportedError, and the errors of `ask`.
    """
    parts = [Window(span.start, span.end, span.start) for span in ranges]
    size, who = 0, (settings.group, settings.tags)
    while left := [(*pair,) for pair in zip(ranges, parts, strict=True) if not pair[1].is_done]:
        answers = ask(
            [pull(*span.queue[::2], row.at, row.end - row.at, *who) for span, row in left]
        )
        for (_, row), answer in zip(left, answers, strict=True):
            has_moved = answer.code == ResponseCode.PULL_OFFSET_MOVED
            if has_moved or not row.at < answer.next_offset <= answer.maximum:
                return None
            row.records.append(answer.records)
            row.at = answer.next_offset
            size += len(answer.records)
        if size > _TOGETHER_BYTES:
            return None
    queue, ids = ranges[0].queue, [span.queue.queue_id for span in ranges]
    fields = record_fields(queue, parts, ids)
    fields = selected(fields, where, tally, sum(span.rows for span in ranges))
    several = queue._replace(queue_id=SEVERAL_QUEUES)
    return RecordSlice(several, fields, order=np.arange(len(fields)))
