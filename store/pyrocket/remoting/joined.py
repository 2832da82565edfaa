"""Small ranges of several queues as one slice."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_columns import SEVERAL_QUEUES
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.remoting.calls import Ask
from pyrocket.remoting.messages import pull
from pyrocket.remoting.pulls import PullSettings, Window
from pyrocket.remoting.records import record_fields, selected
from pyrocket.values.message import QueueRange

_JOINED_BYTES = 8 << 20
"""Larger ranges are read one after the other."""


def read_together(
    ranges: Sequence[QueueRange],
    ask: Ask,
    settings: PullSettings,
    where: MessageFilter,
    tally: ScanTally,
) -> RecordSlice | None:
    """Return the messages of small ranges of one topic that match `where`, in this order.

    Each flight pulls from all queues that are not done. Returns None if the ranges are too large
    together, or if a queue makes no progress.

    Raises RecordDamagedError, UnsupportedError, and the errors of `ask`.
    """
    parts = [Window(span.start, span.end, span.start) for span in ranges]
    size = 0
    while wanted := [
        (span, window) for span, window in zip(ranges, parts, strict=True) if not window.is_done
    ]:
        calls = [
            pull(
                span.queue.topic,
                span.queue.queue_id,
                window.at,
                window.end - window.at,
                group=settings.group,
                tags=settings.tags,
            )
            for span, window in wanted
        ]
        for (_, window), answer in zip(wanted, ask(calls), strict=True):
            if answer.next_offset <= window.at or answer.next_offset > answer.maximum:
                return None
            window.records.append(answer.records)
            window.at = answer.next_offset
            size += len(answer.records)
        if size > _JOINED_BYTES:
            return None
    joined = _concatenated(
        [record_fields(span.queue, [part]) for span, part in zip(ranges, parts, strict=True)]
    )
    joined = selected(joined, where, tally, sum(span.rows for span in ranges))
    queue = ranges[0].queue._replace(queue_id=SEVERAL_QUEUES)
    return RecordSlice(queue, joined, order=np.arange(len(joined)))


def _concatenated(parts: Sequence[RecordFields]) -> RecordFields:
    """Return the records of all parts, one part after the other, in one buffer."""
    before = np.cumsum([0, *(len(part.data) for part in parts)])
    starts = np.concatenate([part.starts + at for part, at in zip(parts, before[:-1], strict=True)])
    positions = np.concatenate([part.physical_offset for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    buffer = pa.py_buffer(b"".join(part.buffer for part in parts))
    return RecordFields(buffer, positions - starts, starts, sizes)
