"""Timers whose log files are about to go are stored anew, once more at the end of the log.

As RocketMQ does every two days with those that its wheel cannot hold: the copy counts the times in
TIMER_ROLL_TIMES, and the message it was made of is dead from then on. A cancellation is kept as
long as what it cancels is.
"""

import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.config import MAX_PROPERTIES_BYTES
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.properties import TIMER_ROLL_TIMES
from pyrocket.formats.record import BLANK_BYTES
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_copy import Changes, copy_records
from pyrocket.formats.record_crc import without_crc
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import CANCELS, TimerEntries, places
from pyrocket.index.queues.record_fetch import Scattered, read_scattered
from pyrocket.log.commit_log import CommitLog
from pyrocket.services.delay.timer_queue import ordered
from pyrocket.services.delay.waiting import Waiting

_MAX_BYTES = 8 * 1024 * 1024

_log = logging.getLogger(__name__)


def copies_of_kept(log: CommitLog, waiting: Waiting, log_start: int) -> Iterator[EncodedBatch]:
    """Yield copies of what waits and lies before `log_start`, a few MiB each, in queue order."""
    entries, offsets, sizes = ordered(_to_keep(waiting, log_start))
    parts = np.cumsum(sizes) // _MAX_BYTES
    for part in np.unique(parts):
        rows = np.flatnonzero(parts == part)
        found = read_scattered(log, offsets[rows], sizes[rows])
        if len(found.at) < len(rows):
            _log.error("%d timers are damaged and cannot be kept", len(rows) - len(found.at))
        if len(found.at):
            yield _copies(found, entries["copies"][rows][found.at] + 1, log.file_bytes)


def _to_keep(waiting: Waiting, log_start: int) -> TimerEntries:
    entries = waiting.entries
    below = entries["physical_offset"] < log_start
    kept = below & waiting.alive
    cancels = below & waiting.ahead & (entries["copies"] == CANCELS)
    if cancels.any():
        named = places(entries)
        kept |= cancels & np.isin(named, named[~below & (entries["copies"] != CANCELS)])
    return entries[kept]


def _copies(found: Scattered, times: Ints, file_bytes: int) -> EncodedBatch:
    records = found.fields()
    properties = without_crc(records.properties())
    marked = _with_times(properties, times)
    lengths, longer = records.properties_length, pc.binary_length(marked).to_numpy()
    # Without the mark one is delivered twice at worst, if the power goes before its old file does.
    fits = (longer <= MAX_PROPERTIES_BYTES) & (
        records.sizes + longer - lengths <= file_bytes - BLANK_BYTES
    )
    changes = Changes(properties=pc.if_else(pa.array(fits), marked, properties))
    rows = np.arange(len(records))
    return copy_records(records, rows, TIMER_TOPIC, np.zeros(len(rows), np.int32), changes)


def _with_times(properties: pa.BinaryArray, times: Ints) -> pa.BinaryArray:
    """Return the blocks with a last property, which counts where its name is there before."""
    closed = pc.or_(pc.ends_with(properties, b"\x02"), pc.equal(properties, b""))
    nothing, end = pa.scalar(b"", pa.binary()), pa.scalar(b"\x02", pa.binary())
    return pc.binary_join_element_wise(
        properties,
        pc.if_else(closed, nothing, end),
        pa.scalar(f"{TIMER_ROLL_TIMES}\x01".encode(), pa.binary()),
        pa.array(times).cast(pa.string()).cast(pa.binary()),
        end,
        nothing,
    )
