"""A few messages of each of many queues of a topic as one slice.

What a slice of a scan costs besides its bytes is paid once, not once a queue: a micro-batch over
many queues often has one message of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyrocket.errors import PyrocketError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record import FIXED_BYTES
from pyrocket.formats.record_columns import SEVERAL_QUEUES, QueueRun
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.scanner import SLICE_BYTES, SLICE_ROWS
from pyrocket.index.queues.sparse import read_apart
from pyrocket.log.commit_log import CommitLog

Run = tuple[ConsumeQueue, int, int]
"""A queue, and the messages of it: from the first up to, not including, the second."""


@dataclass(frozen=True)
class _Places:
    """Messages in the order of the queues: which they are and what their entries say."""

    queue_ids: Ints
    queue_offsets: Ints
    entries: Entries


def slice_of_runs(
    log: CommitLog, runs: Sequence[Run], broker: str, where: MessageFilter, tally: ScanTally
) -> RecordSlice | None:
    """Return the messages that `where` wants, to be decoded in the order of the runs.

    None where they are more than a slice, or one cannot be read; read each run alone then.
    """
    run = QueueRun(runs[0][0].topic, broker, SEVERAL_QUEUES, 0)
    places = _places(runs)
    if places is None:
        return None
    count = len(places.entries)
    codes = places.entries["tags_code"].astype(np.int64)
    places = _chosen(places, where.may_match(run.topic, codes))
    try:
        # The log has them in another order.
        order = np.argsort(places.entries["physical_offset"], kind="stable")
        fields = _records(log, run.topic, _chosen(places, order))
        if len(order) and not where.wants_all:
            wanted = where.matching(PropertyColumns(fields.properties()), len(order))
            fields, order = fields.part(wanted), order[wanted]
    except (PyrocketError, FileNotFoundError):
        return None
    tally.entries, tally.records = tally.entries + count, tally.records + len(places.entries)
    tally.messages += len(fields)
    return RecordSlice(run, fields, np.argsort(order, kind="stable"))


def _places(runs: Sequence[Run]) -> _Places | None:
    found = []
    for queue, start, end in runs:
        entries = queue.entries(start, end)
        if len(entries) < end - start:
            return None
        found.append(entries)
    counts = [len(entries) for entries in found]
    entries = np.concatenate(found)
    sizes = entries["size"].astype(np.int64)
    if (sizes < FIXED_BYTES).any() or sizes.sum() > SLICE_BYTES or len(sizes) > SLICE_ROWS:
        return None
    return _Places(
        np.repeat([queue.queue_id for queue, _, _ in runs], counts),
        np.concatenate([np.arange(start, end) for _, start, end in runs]),
        entries,
    )


def _chosen(places: _Places, rows: np.ndarray) -> _Places:
    return _Places(places.queue_ids[rows], places.queue_offsets[rows], places.entries[rows])


def _records(log: CommitLog, topic: str, places: _Places) -> RecordFields:
    """Return the records at the places, which ascend in the log, checked to be the messages."""
    offsets = places.entries["physical_offset"].astype(np.int64)
    sizes = places.entries["size"].astype(np.int64)
    ends = offsets + sizes
    if (offsets < 0).any() or (offsets[1:] < ends[:-1]).any() or (ends < offsets).any():
        raise FileNotFoundError("these are no places in the log")
    if not len(offsets):
        return RecordFields(pa.py_buffer(b""), 0, offsets, sizes)
    fields = read_apart(log, offsets, sizes)
    fields.check_places(topic, places.queue_ids, places.queue_offsets)
    return fields
