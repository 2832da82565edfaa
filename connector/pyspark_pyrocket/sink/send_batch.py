"""Arrow batches of a DataFrame → batches that a store appends. Pure, column by column."""

import pyarrow as pa
import pyarrow.compute as pc
from pyrocket.errors import MessageError

from pyspark_pyrocket.json.encode import json_objects, json_text
from pyspark_pyrocket.options.payload import BASE64, EMPTY, FAIL, TEXT_KEY
from pyspark_pyrocket.sink.columns import JsonBody, SinkColumn, SinkColumns
from pyspark_pyrocket.sink.kafka_rows import (
    encode_keys,
    is_utf8,
    mark_null_bodies,
    refuse_null_bodies,
    text_of_keys,
)

_TEXT = pa.string()


def send_batch(
    batch: pa.RecordBatch,
    columns: SinkColumns,
    json_body: JsonBody | None = None,
    *,
    null_body: str = FAIL,
    key_encoding: str = TEXT_KEY,
) -> pa.RecordBatch:
    """Return the rows under the names and types of an append; MessageError names the row."""
    sent = {name: _sent(name, batch, column) for name, column in columns.items()}
    if json_body is not None:
        sent["body"] = _encoded(batch, json_body)
    if columns.get("keys", _NO_KEY).source == "key":
        if key_encoding == BASE64:
            encode_keys(sent)
        else:
            sent["keys"] = text_of_keys(sent["keys"])
        sent["shardingKey"] = _route_by_key(sent)
    if null_body == EMPTY:
        mark_null_bodies(sent)
    refuse_null_bodies(sent)
    return pa.RecordBatch.from_arrays(list(sent.values()), names=list(sent))


_NO_KEY = SinkColumn("", -1, pa.null())


def _sent(name: str, batch: pa.RecordBatch, column: SinkColumn) -> pa.Array:
    values = batch.column(column.position)
    # Large strings, dictionaries and fields that cannot be null: other forms of the same type.
    if not values.type.equals(column.arrow):
        values = values.cast(column.arrow)
    if name == "properties" and pa.types.is_list(column.arrow):
        return _map_of_headers(values)
    return values


def _encoded(batch: pa.RecordBatch, body: JsonBody) -> pa.StringArray:
    columns = [batch.column(position) for position in body.positions]
    if body.whole:
        return json_text(columns[0])
    return json_objects(body.names, columns, len(batch))


def _route_by_key(sent: dict[str, pa.Array]) -> pa.Array:
    """Return the sharding keys: a row with neither one nor a queue is routed by its key."""
    keys = sent["keys"]
    if "queueId" in sent:
        keys = pc.if_else(sent["queueId"].is_null(), keys, pa.scalar(None, _TEXT))
    return pc.coalesce(sent["shardingKey"], keys) if "shardingKey" in sent else keys


def _map_of_headers(headers: pa.ListArray) -> pa.MapArray:
    """Return Kafka's headers as a map of strings; a null list has none."""
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    rows = pc.list_parent_indices(headers)
    names, values = headers.flatten().flatten()
    if names.null_count:
        raise _illegal(rows[pc.index(names.is_null(), True).as_py()], "has a header without key")
    return pa.MapArray.from_arrays(offsets, names, _text_of_headers(values, rows))


def _text_of_headers(values: pa.BinaryArray, rows: pa.Array) -> pa.StringArray:
    """Return bytes as the UTF-8 text that they have to be; `rows` maps elements to rows."""
    try:
        return values.cast(_TEXT)
    except pa.ArrowInvalid:
        at = next(at for at, value in enumerate(values) if not is_utf8(value.as_py()))
        raise _illegal(rows[at], "has a header that is not UTF-8") from None


def _illegal(row: object, what: str) -> MessageError:
    return MessageError(f"row {row} {what}: RocketMQ stores it as text.")
