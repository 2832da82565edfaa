"""The index entry of a message in the timer topic: 48 bytes, little-endian.

     0  due (8)              epoch ms, at least 1
     8  queueOffset (8)      in queue 0 of the timer topic
    16  physicalOffset (8)
    24  key (8)              hash of its topic and unique id: `_keys`
    32  size (4)
    36  copies (4)           number of the copy, 0 for the original; -1 for a cancellation
    40  check (8)            check of all preceding fields; zeros and torn entries do not match

A pending message may be re-appended: RocketMQ does this every two days (TIMER_ROLL_TIMES), this
store before it deletes old log files. Then only the last copy is delivered. A cancellation
(TIMER_DEL_UNIQKEY) applies to the message with the same key in the same slot. A slot is a second;
it contains the messages due after its start, up to and including its end.

The number of timers in each bucket is kept in rows of 40 bytes, little-endian:

     0  timed (8)   timers are indexed up to this queue offset
     8  start (8)   the bucket's name; -1 for a mark, which ends the rows of one update
    16  count (8)   entries added to the bucket; in a mark, the number of rows before it
    24  sum (8)     sum of the entries' checks, modulo 2^64; in a mark, sum of the checks of all
                    rows before it, except marks
    32  check (8)   check of all preceding fields
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.hashes import Hashes, fnv1a_column
from pyrocket.formats.properties import (
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
)
from pyrocket.formats.property_columns import PropertyColumns, numbers
from pyrocket.formats.record_fields import RecordFields

TIMER_ENTRY = np.dtype(
    [
        ("due", "<i8"),
        ("queue_offset", "<i8"),
        ("physical_offset", "<i8"),
        ("key", "<u8"),
        ("size", "<i4"),
        ("copies", "<i4"),
        ("check", "<u8"),
    ]
)
ENTRY_BYTES = TIMER_ENTRY.itemsize
CANCELS = -1
SLOT_MS = 1000
"""RocketMQ's timerPrecisionMs."""

TimerEntries = npt.NDArray[np.void]

_TIME = "^[0-9]{1,18}$"
_COUNT = "^[0-9]{1,9}$"
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
_LAST_FACTOR = np.uint64(0xFF51AFD7ED558CCD)


def timer_entries(records: RecordFields, queue_offsets: Ints) -> TimerEntries:
    """Return the entries of checked records of the timer topic, including their checks."""
    columns = records.property_columns
    entries = np.zeros(len(records), TIMER_ENTRY)
    entries["due"] = due_times(columns)
    entries["queue_offset"] = queue_offsets
    entries["physical_offset"] = records.physical_offset
    entries["size"] = records.sizes
    cancelled = columns.column(TIMER_DEL_UNIQKEY)
    copies = np.maximum(numbers(columns.column(TIMER_ROLL_TIMES), _COUNT), 0)
    entries["copies"] = np.where(_is_given(cancelled), CANCELS, copies)
    entries["key"] = _keys(records, columns, cancelled)
    return seal(entries)


def due_times(columns: PropertyColumns) -> Ints:
    """Return the due times of messages with these properties, epoch ms, at least 1.

    A RocketMQ broker rounds TIMER_OUT_MS down to the start of its second (of the previous second,
    if the time has no fraction) and delivers the message at the end of this second.
    TIMER_DELIVER_MS is exact if TIMER_OUT_MS was derived from it. A message with neither is due at
    once. Source: `HookUtils.transformTimerMessage`, `TimerMessageStore.dequeue`.
    """
    out = np.maximum(numbers(columns.column(TIMER_OUT_MS), _TIME), 0)
    wanted = numbers(columns.column(TIMER_DELIVER_MS), _TIME)
    relative = _is_given(columns.column(TIMER_DELAY_SEC)) | _is_given(
        columns.column(TIMER_DELAY_MS)
    )
    latest = out + SLOT_MS
    exact = np.clip(wanted, out, latest)
    return np.maximum(np.where(relative & (out > 0), latest, exact * (out > 0)), 1)


def slots(dues: Ints) -> Ints:
    """Return the slot of each due time; RocketMQ delivers and cancels slot by slot."""
    return (dues - 1) // SLOT_MS


def slot_start(due_ms: int) -> int:
    """Return the start of the slot of a due time. The start itself is not part of the slot."""
    return (due_ms - 1) // SLOT_MS * SLOT_MS


def places(entries: TimerEntries) -> Hashes:
    """Return a hash of key and slot: equal for all copies of a message and its cancellation."""
    slot = slots(entries["due"]).astype(np.uint64)
    return _mixed(entries["key"] ^ _mixed(slot))


def marks(entries: TimerEntries) -> Hashes:
    """Return a hash of key and due time: equal for a message and its delivered copy."""
    return _mixed(entries["key"] ^ _mixed(entries["due"].astype(np.uint64)))


def delete_keys(topics: pa.StringArray, ids: pa.StringArray) -> pa.StringArray:
    """Return the keys for cancelling messages: topic, `+` and unique id; null if one is missing.

    Source: `TimerMessageStore.buildDeleteKey`. RocketMQ 5.0 to 5.2, and 5.5 by default, omit the
    topic; then the topic of the cancellation is used.
    """
    return pc.if_else(
        pc.match_substring(ids, "+"), ids, pc.binary_join_element_wise(topics, ids, "+")
    )


def seal(entries: TimerEntries) -> TimerEntries:
    """Set the checks; return the same array."""
    entries["check"] = _checks(entries)
    return entries


def sound(entries: TimerEntries) -> TimerEntries:
    """Return the entries that were written completely."""
    return entries[entries["check"] == _checks(entries)]


def _checks(entries: TimerEntries) -> Hashes:
    size = entries["size"].astype(np.int64) << 32 | entries["copies"].astype(np.int64) & 0xFFFFFFFF
    parts = (entries["due"], entries["queue_offset"], entries["physical_offset"], size)
    return _mixed(check_of(*parts) ^ entries["key"])


def check_of(*parts: Ints | Hashes) -> Hashes:
    """Return a check of each row of four columns. A row of zeros never has a valid check."""
    check = np.full(len(parts[0]), 0x70795F72_6F636B65, np.uint64)
    for part, factor in zip(parts, _FACTORS, strict=True):
        check = _mixed(check ^ part.astype(np.uint64) * np.uint64(factor))
    return check


def _mixed(values: Hashes) -> Hashes:
    """Mix the bits of each value, as in MurmurHash3."""
    values = (values ^ values >> np.uint64(33)) * _LAST_FACTOR
    return np.asarray(values ^ values >> np.uint64(33))


def _keys(records: RecordFields, columns: PropertyColumns, cancelled: pa.StringArray) -> Hashes:
    """Return hashes of the messages' keys. A cancellation has the hash of the message it cancels.

    Messages without a unique id are identified by born time and body checksum.
    """
    ids = pc.coalesce(cancelled, columns.column(UNIQ_KEY))
    names = delete_keys(columns.column(REAL_TOPIC), ids)
    keys = fnv1a_column(pc.fill_null(names, ""))
    without_key = ~_is_given(names)
    if without_key.any():
        born = records.field("born_timestamp").astype(np.uint64)
        body = records.field("crc").astype(np.uint64) << np.uint64(32)
        keys[without_key] = _mixed(_mixed(born) ^ body)[without_key]
    return keys


def _is_given(texts: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(texts.is_valid().to_numpy(zero_copy_only=False))


TALLY = np.dtype(
    [("timed", "<i8"), ("start", "<i8"), ("count", "<i8"), ("sum", "<u8"), ("check", "<u8")]
)
TALLY_BYTES = TALLY.itemsize
MARK = -1

TallyRows = npt.NDArray[np.void]


def tally_rows(timed: int, hours: dict[int, tuple[int, int]]) -> TallyRows:
    """Return rows with the counts and sums by bucket, and a mark; `sealed` sets their checks."""
    rows = np.zeros(len(hours) + 1, TALLY)
    rows["timed"], rows["start"][:-1] = timed, list(hours)
    rows["count"][:-1] = [count for count, _ in hours.values()]
    rows["sum"][:-1] = [total for _, total in hours.values()]
    rows["start"][-1] = MARK
    return rows


def sealed(rows: TallyRows, first: int = 0) -> TallyRows:
    """Return all rows of a file, with the marks and checks set from row `first` on."""
    rows = rows.copy()
    marks = rows["start"] == MARK
    new = np.arange(len(rows)) >= first
    plain = new & ~marks
    rows["check"][plain] = _row_checks(rows[plain])
    sums = _row_sums(rows, marks)
    own = new & marks
    rows["count"][own], rows["sum"][own] = np.flatnonzero(own), sums[own]
    rows["check"][own] = _row_checks(rows[own])
    return rows


def decode_tally(data: bytes, timed: int) -> TallyRows | None:
    """Return the rows up to the mark of `timed`; None if the mark is missing or a row is corrupt.

    Rows after the mark are newer than `timed`, or were written by a writer that died.
    """
    rows = np.frombuffer(data, TALLY, len(data) // TALLY_BYTES)
    at = np.flatnonzero((rows["start"] == MARK) & (rows["timed"] == timed))
    if not len(at):
        return None
    rows = rows[: int(at[0]) + 1]
    total = _row_sums(rows, rows["start"] == MARK)[-1]
    mark = rows[-1]
    whole = int(mark["count"]) == len(rows) - 1 and mark["sum"] == total
    return rows if whole and (rows["check"] == _row_checks(rows)).all() else None


def _row_sums(rows: TallyRows, marks: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    return np.cumsum(np.where(marks, np.uint64(0), rows["check"]), dtype=np.uint64)


def _row_checks(rows: TallyRows) -> npt.NDArray[np.uint64]:
    return check_of(rows["timed"], rows["start"], rows["count"], rows["sum"])
