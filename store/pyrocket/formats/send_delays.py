"""When the rows of a batch are to be delivered: three columns say it, at most one of them a row.

delayLevel        int32, from 1 on; 0 or null: at once
delay             string, `10m`, `2h30m`, …, from the append on; null or empty: at once
deliverTimestamp  timestamp of any unit, UTC where it has no zone; null: at once
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.config import parse_duration
from pyrocket.formats.refusing import refuse

_NONE = pa.scalar(None, pa.int64())
_MOST_SECONDS = 2**53
_TICKS_PER_MS = {"us": 1000, "ns": 1_000_000}


@dataclass(frozen=True)
class SendDelays:
    """Checked columns as int64, null where a row says nothing; an absent column is None.

    `delay` and `deliver_at` are milliseconds, the latter since the epoch, rounded up.
    """

    level: pa.Int64Array | None
    delay: pa.Int64Array | None
    deliver_at: pa.Int64Array | None


def read_delays(columns: Mapping[str, pa.Array]) -> SendDelays:
    """Return what the columns say, or raise MessageError naming the row."""
    level, delay = columns.get("delayLevel"), columns.get("delay")
    deliver_at = columns.get("deliverTimestamp")
    read = SendDelays(
        None if level is None else _check_levels(level),
        None if delay is None else _parse_all(delay),
        None if deliver_at is None else _to_ms(deliver_at),
    )
    given = [
        pc.cast(column.is_valid(), pa.int8())
        for column in (read.level, read.delay, read.deliver_at)
        if column is not None
    ]
    while len(given) > 1:
        given[:2] = [pc.add(given[0], given[1])]
    if given:
        refuse(
            pc.greater(given[0], 1),
            "DELAY_TWICE",
            lambda row: "has more than one of delayLevel, delay and deliverTimestamp",
        )
    return read


def _check_levels(level: pa.Array) -> pa.Int64Array:
    refuse(
        pc.less(level, 0),
        "MESSAGE_ILLEGAL",
        lambda row: f"has the delay level {level[row]}; levels count from 1",
    )
    return pc.if_else(pc.equal(level, 0), _NONE, level.cast(pa.int64()))


def _parse_all(text: pa.StringArray) -> pa.Int64Array:
    distinct = text.dictionary_encode()
    words = distinct.dictionary.to_pylist()
    parsed = pa.array([parse_duration(word) for word in words], pa.int64())
    delays = parsed.take(distinct.indices)
    given = pc.fill_null(pc.not_equal(text, ""), False)
    refuse(
        pc.and_(given, delays.is_null()),
        "MESSAGE_ILLEGAL",
        lambda row: (
            f"has the delay {text[row].as_py()!r}; it has to be like '90s', '10m', '2h30m' or '1d'"
        ),
    )
    return delays


def _to_ms(moment: pa.TimestampArray) -> pa.Int64Array:
    """Return epoch milliseconds from 0 on; a part of one counts, so that nothing is early."""
    ticks = pc.max_element_wise(moment.cast(pa.int64()), 0, skip_nulls=False)
    unit = moment.type.unit
    if unit == "s":
        return pc.multiply(pc.min_element_wise(ticks, _MOST_SECONDS, skip_nulls=False), 1000)
    per_ms = _TICKS_PER_MS.get(unit, 1)
    whole = pc.divide(ticks, per_ms)
    begun = pc.less(pc.multiply(whole, per_ms), ticks)
    return pc.add(whole, begun.cast(pa.int64()))
