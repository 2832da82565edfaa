"""Converts Spark's types to Arrow's, and Arrow arrays to other types without Python loops. Pure."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types

LOG_APPEND_TIME = 1
"""Kafka's timestampType for the time at which the broker stored a message."""

_SIMPLE: dict[types.DataType, pa.DataType] = {
    types.BinaryType(): pa.binary(),
    types.BooleanType(): pa.bool_(),
    types.ByteType(): pa.int8(),
    types.DateType(): pa.date32(),
    types.DoubleType(): pa.float64(),
    types.FloatType(): pa.float32(),
    types.ShortType(): pa.int16(),
    types.IntegerType(): pa.int32(),
    types.LongType(): pa.int64(),
    types.TimestampNTZType(): pa.timestamp("us"),
    types.TimestampType(): pa.timestamp("us", tz="UTC"),
}


def arrow_type(spark_type: types.DataType) -> pa.DataType:
    """Return the only Arrow type that Spark accepts for this type, nullability included.

    Raises KeyError for a type that no column of a read can have.
    """
    if isinstance(spark_type, types.ArrayType):
        element = arrow_type(spark_type.elementType)
        return pa.list_(pa.field("element", element, spark_type.containsNull))
    if isinstance(spark_type, types.MapType):
        value = arrow_type(spark_type.valueType)
        return pa.map_(
            arrow_type(spark_type.keyType), pa.field("value", value, spark_type.valueContainsNull)
        )
    if isinstance(spark_type, types.StructType):
        return pa.struct(arrow_schema(spark_type))
    if isinstance(spark_type, types.DecimalType):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    if isinstance(spark_type, types.StringType):
        return pa.string()  # With any collation.
    return _SIMPLE[spark_type]


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """Return the Arrow schema, nullability included, that Spark requires of batches."""
    return pa.schema(
        [pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in schema]
    )


def as_binary(text: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the UTF-8 bytes of strings."""
    return text.view(wanted)


def log_append_time(rows: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return LOG_APPEND_TIME for each row."""
    return pa.repeat(pa.scalar(LOG_APPEND_TIME, wanted), len(rows))


def headers_of_map(properties: pa.MapArray, wanted: pa.ListType) -> pa.ListArray:
    """Return maps of strings as lists of Kafka's headers; an empty or null map becomes null."""
    entry = wanted.value_type
    pairs = pa.StructArray.from_arrays(
        [properties.keys, properties.items.view(entry.field(1).type)],
        fields=[entry.field(0), entry.field(1)],
    )
    # `from_arrays` accepts a mask only if the offsets are not a slice; `concat_arrays` copies the
    # slice.
    offsets = pa.concat_arrays([properties.offsets, properties.offsets[:0]])
    none = pc.or_(properties.is_null(), pc.equal(offsets[1:], offsets[:-1]))
    return pa.ListArray.from_arrays(offsets, pairs, type=wanted, mask=none)


def map_entries_where(entries: pa.MapArray, kept: npt.NDArray[np.bool_]) -> pa.MapArray:
    """Return the maps with only the selected entries; `kept` contains a flag for each entry."""
    before = np.concatenate((np.zeros(1, np.int32), np.cumsum(kept, dtype=np.int32)))
    offsets = pa.array(before[entries.offsets.to_numpy()])
    mask = pa.array(kept)
    return pa.MapArray.from_arrays(offsets, entries.keys.filter(mask), entries.items.filter(mask))


def map_with_entry(
    entries: pa.MapArray, rows: npt.NDArray[np.bool_], name: str, value: str
) -> pa.MapArray:
    """Return the maps with an entry added in the flagged rows; a null map is treated as empty."""
    if entries.null_count:
        entries = _without_nulls(entries)
    offsets = entries.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    counts = np.diff(offsets)
    ends = np.cumsum(counts + rows)
    # For each entry of the result, its index in `keys` and `items`, where the added entry is last.
    sources = np.full(int(ends[-1]) if len(ends) else 0, last - first)
    is_old = np.ones(len(sources), np.bool_)
    is_old[ends[rows] - 1] = False
    sources[is_old] = np.arange(last - first)
    order = pa.array(sources)
    keys = pa.concat_arrays([entries.keys.slice(first, last - first), pa.array([name])])
    items = pa.concat_arrays([entries.items.slice(first, last - first), pa.array([value])])
    bounds = pa.array(np.concatenate(([0], ends)), pa.int32())
    return pa.MapArray.from_arrays(bounds, keys.take(order), items.take(order))


def _without_nulls(entries: pa.MapArray) -> pa.MapArray:
    """Replace null maps, whose slots may still hold entries, with empty ones."""
    offsets = entries.offsets.to_numpy()
    kept = np.zeros(len(entries.keys), np.bool_)
    valid = entries.is_valid().to_numpy(zero_copy_only=False)
    kept[offsets[0] : offsets[-1]] = np.repeat(valid, np.diff(offsets))
    return map_entries_where(entries, kept)


def bounds_of(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the n + 1 offsets into the data buffer of a string or binary array of n values."""
    if not len(values):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    return offsets.astype(np.int64)


def bytes_of(values: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all values of a string or binary array as one array."""
    data, bounds = values.buffers()[2], bounds_of(values)
    if data is None:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
