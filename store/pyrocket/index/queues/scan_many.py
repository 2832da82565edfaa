"""A few messages of each of many queues of a topic, as one slice.

The fixed cost of a slice is paid once, not per queue: a micro-batch over many queues often has one
message of each.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyrocket.errors import PyrocketError, StoreDamagedError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record import FIXED_BYTES
from pyrocket.formats.record_columns import SEVERAL_QUEUES
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.record_fetch import read_sparse
from pyrocket.index.queues.scanner import SLICE_BYTES, SLICE_ROWS
from pyrocket.log.commit_log import CommitLog
from pyrocket.values.message import MessageQueue

Run = tuple[ConsumeQueue, int, int]
"""A queue, and the range [start, end) of its messages."""


def slice_of_runs(
    log: CommitLog, runs: Sequence[Run], broker_name: str, where: MessageFilter, tally: ScanTally
) -> RecordSlice | None:
    """Return the messages that match `where` as one slice that is decoded in range order.

    Returns None if the messages exceed a slice or cannot be read. The caller then scans each range
    separately, which raises the error for messages that cannot be read.
    """
    entries = _entries(runs)
    if entries is None:
        return None
    topic, codes = runs[0][0].topic, entries["tags_code"].astype(np.int64)
    queue_ids = np.repeat([queue.queue_id for queue, _, _ in runs], [b - a for _, a, b in runs])
    queue_offsets = np.concatenate([np.arange(start, end) for _, start, end in runs])
    rows = np.flatnonzero(where.may_match(topic, codes))
    # In log order, which differs from the order of the queues.
    rows = rows[np.argsort(entries["physical_offset"][rows], kind="stable")]
    try:
        records = _records(log, entries[rows])
        records.check_places(topic, queue_ids[rows], queue_offsets[rows])
    except (PyrocketError, FileNotFoundError):
        return None
    kept_rows = rows
    if len(rows) and not where.wants_all:
        kept = where.matching(PropertyColumns(records.properties()), len(rows))
        records, kept_rows = records.part(kept), rows[kept]
    tally.add(ScanTally(len(entries), len(rows), len(kept_rows)))
    queue = MessageQueue(topic, broker_name, SEVERAL_QUEUES)
    return RecordSlice(queue, records, codes[kept_rows], np.argsort(kept_rows))


def _entries(runs: Sequence[Run]) -> Entries | None:
    """Return the entries of all messages; None if one is missing or there are too many."""
    found = [queue.entries(start, end) for queue, start, end in runs]
    if any(len(part) < end - start for part, (_, start, end) in zip(found, runs, strict=True)):
        return None
    entries = np.concatenate(found)
    sizes = entries["size"].astype(np.int64)
    if (sizes < FIXED_BYTES).any() or sizes.sum() > SLICE_BYTES or len(sizes) > SLICE_ROWS:
        return None
    return entries


def _records(log: CommitLog, entries: Entries) -> RecordFields:
    """Return the records of entries that are in log order.

    Raises StoreDamagedError, FileNotFoundError.
    """
    offsets = entries["physical_offset"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    ends = offsets + sizes
    if (offsets < 0).any() or (offsets[1:] < ends[:-1]).any() or (ends < offsets).any():
        raise StoreDamagedError("the queue entries overlap.")
    if not len(offsets):
        return RecordFields(pa.py_buffer(b""), 0, offsets, sizes)
    return read_sparse(log, offsets, sizes)
