"""The columns of a batch to append, and checks that the batch can be stored and read back.

    body         binary | string, required, no nulls, at most 4 MiB
    topic        string, unless the caller gives the topic
    tags         string
    keys         list<string> | string (one key); without spaces, nulls and empty strings in a list
    properties   map<string, string>; names that RocketMQ does not reserve, non-empty values
    queueId      int32 | int64; null: chosen by shardingKey, otherwise spread evenly
    shardingKey  string; equal keys are sent to one queue, in order
    flag         int32

A row may also have a delivery time, in at most one of these columns:

    delayLevel        int32, from 1 on; 0 or null: deliver at once
    delay             string such as `10m` or `2h30m`, after the append; null or empty: at once
    deliverTimestamp  timestamp of any unit, UTC if it has no zone; null: at once

Text is UTF-8 without \\x01 and \\x02. Empty tags, an empty shardingKey, and keys that are an empty
string or list are treated as missing, because properties cannot be empty. All rows are checked
before anything is written; errors contain the row, counted from 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.base.config import MAX_BODY_BYTES, parse_duration
from pyrocket.errors import MessageError, SchemaError
from pyrocket.formats.arrow_buffers import is_utf8, text_bytes
from pyrocket.formats.properties import RESERVED_PROPERTIES

_Rows = npt.NDArray[np.integer[Any]]
"""The row of each element of a flattened column."""


def refuse(
    bad: pa.BooleanArray, code: str, describe: Callable[[int], str], rows: _Rows | None = None
) -> None:
    """Raise MessageError for the first true element of `bad`; `rows` maps elements to rows."""
    at = pc.index(bad, True).as_py()
    if at < 0:
        return
    row = at if rows is None else int(rows[at])
    raise MessageError(f"row {row} {describe(at)}.", remedy="Correct that row.", code=code)


_MAX_SECONDS = 2**53
_TICKS_PER_MS = {"us": 1000, "ns": 1_000_000}


def read_delays(columns: Mapping[str, pa.Array]) -> dict[str, pa.Int64Array]:
    """Return the delay columns by their names in `SendColumns`, with nulls for missing values.

    Raises MessageError with the invalid row.
    """
    kinds = (
        ("delay_level", "delayLevel", _check_levels),
        ("delay", "delay", _parse_all),
        ("deliver_at", "deliverTimestamp", _to_ms),
    )
    read = {own: check(columns[name]) for own, name, check in kinds if name in columns}
    if given := [pc.cast(column.is_valid(), pa.int8()) for column in read.values()]:
        refuse(
            pc.greater(reduce(pc.add, given), 1),
            "DELAY_TWICE",
            lambda row: "has more than one of delayLevel, delay and deliverTimestamp",
        )
    return read


def _check_levels(level: pa.Array) -> pa.Int64Array:
    refuse(
        pc.less(level, 0),
        "MESSAGE_ILLEGAL",
        lambda row: f"has the delay level {level[row]}; levels start at 1",
    )
    return pc.if_else(pc.equal(level, 0), pa.scalar(None, pa.int64()), level.cast(pa.int64()))


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
            f"has the delay {text[row].as_py()!r}; use a form such as '90s', '10m', '2h30m' or '1d'"
        ),
    )
    return delays


def _to_ms(moment: pa.TimestampArray) -> pa.Int64Array:
    """Return epoch milliseconds, at least 0, rounded up so that messages are never early."""
    ticks = pc.max_element_wise(moment.cast(pa.int64()), 0, skip_nulls=False)
    unit = moment.type.unit
    if unit == "s":
        return pc.multiply(pc.min_element_wise(ticks, _MAX_SECONDS, skip_nulls=False), 1000)
    per_ms = _TICKS_PER_MS.get(unit, 1)
    whole = pc.divide(ticks, per_ms)
    begun = pc.less(pc.multiply(whole, per_ms), ticks)
    return pc.add(whole, begun.cast(pa.int64()))


SEND_COLUMNS: dict[str, tuple[pa.DataType, ...]] = {
    "body": (pa.binary(), pa.string()),
    "topic": (pa.string(),),
    "tags": (pa.string(),),
    "keys": (pa.list_(pa.string()), pa.string()),
    "properties": (pa.map_(pa.string(), pa.string()),),
    "queueId": (pa.int32(), pa.int64()),
    "shardingKey": (pa.string(),),
    "flag": (pa.int32(),),
    "delayLevel": (pa.int32(),),
    "delay": (pa.string(),),
    "deliverTimestamp": (pa.timestamp("us", "UTC"),),
}
"""All columns that an append accepts, with their Arrow types (timestamps may have any unit)."""

_SEPARATORS, _SPACE = (1, 2), (32,)


def check_send_schema(schema: pa.Schema) -> None:
    """Raise SchemaError unless `schema` has a body and only distinct columns of SEND_COLUMNS."""
    if "body" not in schema.names:
        raise SchemaError(
            f"there is no `body` column among {schema.names}.",
            remedy="Select the payload AS body (string or binary).",
            code="BODY_COLUMN_MISSING",
        )
    for field in schema:
        kinds = SEND_COLUMNS.get(field.name)
        if kinds is None:
            raise SchemaError(
                f"an append has no column {field.name!r}.",
                remedy=f"Its columns are {', '.join(SEND_COLUMNS)}.",
                code="COLUMN_UNKNOWN",
            )
        if schema.names.count(field.name) > 1:
            raise SchemaError(
                f"there are several columns {field.name!r}.",
                remedy="Drop or rename all but one.",
                code="COLUMN_TWICE",
            )
        if not any(_is_kind(field.type, kind) for kind in kinds):
            raise SchemaError(
                f"column {field.name!r} is {field.type}.",
                remedy=f"It has to be {' or '.join(map(str, kinds))}.",
                code="COLUMN_TYPE",
            )


def _is_kind(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether the types are the same, except for names and nullability inside lists and maps.

    Timestamps of any unit and zone are the same.
    """
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(kind):
        return True
    if pa.types.is_list(given) and pa.types.is_list(kind):
        return bool(given.value_type.equals(kind.value_type))
    if pa.types.is_map(given) and pa.types.is_map(kind):
        return bool(given.key_type.equals(kind.key_type) and given.item_type.equals(kind.item_type))
    return bool(given.equals(kind))


@dataclass(frozen=True)
class SendColumns:
    """The checked columns of a batch, with one type per column; an absent column is None.

    `keys` are separated by spaces; `properties` are encoded blocks of user properties. `delay` is
    in ms, `deliver_at` in epoch ms. `body_crc` has the CRC-32 of each body if already known.
    """

    body: pa.BinaryArray
    tags: pa.StringArray | None
    keys: pa.StringArray | None
    properties: pa.StringArray | None
    sharding_key: pa.StringArray | None
    queue_id: pa.Array | None
    flag: pa.Array | None
    delay_level: pa.Int64Array | None = None
    delay: pa.Int64Array | None = None
    deliver_at: pa.Int64Array | None = None
    body_crc: pa.Int64Array | None = None

    def __len__(self) -> int:
        return len(self.body)

    def take(self, order: pa.Array) -> "SendColumns":
        """Return the rows in another order."""
        return self._each(lambda column: column.take(order))

    def slice(self, start: int, count: int) -> "SendColumns":
        """Return consecutive rows."""
        return self._each(lambda column: column.slice(start, count))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> "SendColumns":
        present = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{n: change(c) for n, c in present.items() if c is not None})


def check_send_batch(batch: pa.RecordBatch, max_body_bytes: int = MAX_BODY_BYTES) -> SendColumns:
    """Return the checked columns. Raises SchemaError, or MessageError with the invalid row."""
    if not isinstance(batch, pa.RecordBatch):
        kind = type(batch)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        raise SchemaError(
            f"a batch to append is a pyarrow.RecordBatch, not {name}.",
            remedy="For a pyarrow.Table, append each of `table.combine_chunks().to_batches()`; for"
            " a pandas.DataFrame, append"
            " `pyarrow.RecordBatch.from_pandas(frame, preserve_index=False)`.",
            code="NOT_A_BATCH",
        )
    check_send_schema(batch.schema)
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name in {"topic", "delay"} & columns.keys():
        _refuse_bytes(columns[name], (), f"its {name}")
    return SendColumns(
        **read_delays(columns),
        body=_check_body(columns["body"], max_body_bytes),
        tags=_check_text(columns.get("tags"), "tags"),
        keys=_join_keys(columns.get("keys")),
        properties=_encode_properties(columns.get("properties")),
        sharding_key=_check_text(columns.get("shardingKey"), "shardingKey"),
        queue_id=columns.get("queueId"),
        flag=columns.get("flag"),
    )


def _check_body(body: pa.Array, max_bytes: int) -> pa.BinaryArray:
    refuse(body.is_null(), "BODY_NULL", lambda row: "has a null body")
    lengths = pc.binary_length(body)
    refuse(
        pc.greater(lengths, max_bytes),
        "BODY_TOO_LARGE",
        lambda row: f"has a body of {lengths[row]} bytes; the maximum is {max_bytes}",
    )
    return body.cast(pa.binary())


def _check_text(text: pa.StringArray | None, name: str) -> pa.StringArray | None:
    if text is None:
        return None
    _refuse_bytes(text, _SEPARATORS, f"`{name}`")
    return _null_if_empty(text)


def _join_keys(keys: pa.Array | None) -> pa.StringArray | None:
    if keys is None:
        return None
    if not pa.types.is_list(keys.type):
        _refuse_bytes(keys, _SEPARATORS + _SPACE, "its key")
        return _null_if_empty(keys)
    flat = keys.flatten()
    counts = pc.fill_null(pc.list_value_length(keys), 0).to_numpy()
    rows = np.repeat(np.arange(len(keys)), counts)
    refuse(flat.is_null(), "MESSAGE_ILLEGAL", lambda at: "has a null among its keys", rows)
    empty = pc.equal(flat, "")
    refuse(empty, "MESSAGE_ILLEGAL", lambda at: "has an empty string among its keys", rows)
    _refuse_bytes(flat, _SEPARATORS + _SPACE, "a key", rows)
    return _null_if_empty(pc.binary_join(keys, " "))


def _null_if_empty(text: pa.StringArray) -> pa.StringArray:
    """Replace empty values with null, because readers cannot distinguish them."""
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def _encode_properties(properties: pa.MapArray | None) -> pa.StringArray | None:
    """Return the encoded block of each row; a null map is empty."""
    if properties is None:
        return None
    names, values, offsets = _map_entries(properties)
    rows = np.repeat(np.arange(len(properties)), np.diff(offsets))
    _refuse_bytes(names, _SEPARATORS, "a property name", rows)
    _refuse_names(names, rows)
    empty = pc.fill_null(pc.equal(pc.binary_length(values), 0), True)
    refuse(empty, "MESSAGE_ILLEGAL", lambda at: f"has no value for property {names[at]}", rows)
    _refuse_bytes(values, _SEPARATORS, "a property value", rows)
    if len(names) == 0:
        return pa.repeat(pa.scalar("", pa.string()), len(properties))
    pairs = pc.binary_join_element_wise(names, "\x01", values, "\x02", "")
    bounds = np.frombuffer(pairs.buffers()[1], np.int32, len(pairs) + 1)[offsets]
    block_offsets = pa.py_buffer(np.ascontiguousarray(bounds))
    return pa.StringArray.from_buffers(len(properties), block_offsets, pairs.buffers()[2])


def _map_entries(properties: pa.MapArray) -> tuple[pa.StringArray, pa.StringArray, np.ndarray]:
    """Return the names and values of all rows that are not null, and the rows' offsets in them."""
    offsets = properties.offsets.to_numpy()
    counts = np.diff(offsets)
    first, total = int(offsets[0]), int(offsets[-1] - offsets[0])
    names, values = properties.keys.slice(first, total), properties.items.slice(first, total)
    if properties.null_count:
        valid = properties.is_valid().to_numpy(zero_copy_only=False)
        kept = pa.array(np.repeat(valid, counts))
        names, values = names.filter(kept), values.filter(kept)
        counts = np.where(valid, counts, 0)
    return names, values, np.concatenate(([0], np.cumsum(counts)))


def _refuse_names(names: pa.StringArray, rows: _Rows) -> None:
    distinct = names.dictionary_encode()
    words = distinct.dictionary.to_pylist()
    bad = [word in RESERVED_PROPERTIES or not word for word in words]
    if any(bad):
        refuse(
            pa.array(bad).take(distinct.indices),
            "PROPERTY_RESERVED",
            lambda at: f"has the property {names[at]}: the name is empty or reserved by RocketMQ",
            rows,
        )


def _refuse_bytes(
    text: pa.StringArray, illegal: tuple[int, ...], what: str, rows: _Rows | None = None
) -> None:
    """Reject strings that are malformed or contain one of the `illegal` bytes."""
    data = text_bytes(text)
    if data.max(initial=0) >= 0x80:
        _refuse_malformed(text, what, rows)
    if not np.isin(data, illegal).any():
        return
    pattern = "[" + "".join(map(chr, illegal)) + "]"
    refuse(
        pc.fill_null(pc.match_substring_regex(text, pattern), False),
        "MESSAGE_ILLEGAL",
        lambda at: (
            f"has {text[at].as_py()!r} as {what}: a space in a key and the separators \\x01"
            " and \\x02 cannot be stored"
        ),
        rows,
    )


def _refuse_malformed(text: pa.StringArray, what: str, rows: _Rows | None) -> None:
    """Reject strings that are not UTF-8: Spark accepts any bytes in strings, readers do not."""
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        plain = text.cast(pa.binary()).to_pylist()
        bad = pa.array([value is not None and not is_utf8(value) for value in plain])
        refuse(
            bad, "MESSAGE_ILLEGAL", lambda at: f"has {plain[at]!r} as {what}: it is not UTF-8", rows
        )
