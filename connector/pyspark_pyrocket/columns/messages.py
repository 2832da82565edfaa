"""The columns of a read: RocketMQ's, and those of Spark's Kafka source. Pure.

Each column has one type; the columns for bodies and keys have two. The type determines the scan
column from which the column is made, and the conversion.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyrocket.errors import SchemaError
from pyspark.sql import types

from pyspark_pyrocket.arrow_types import as_binary, headers_of_map, log_append_time
from pyspark_pyrocket.options.table import nearest

Convert = Callable[..., pa.Array]
"""Makes a column. Called with the scan columns that it needs, in order, and its Arrow type."""

HEADERS = types.ArrayType(
    types.StructType(
        [
            types.StructField("key", types.StringType()),
            types.StructField("value", types.BinaryType()),
        ]
    )
)
DUE = "dueTimestamp"
"""The time at which a pending message is due; only views have this column."""

_STRINGS = types.MapType(types.StringType(), types.StringType())


@dataclass(frozen=True)
class Variant:
    """A column in one of its types: the scan column that it comes from, and the conversion.

    beside: another scan column that `convert` needs, or "".
    """

    spark_type: types.DataType
    scan: str
    convert: Convert | None = None
    beside: str = ""

    @property
    def scanned(self) -> tuple[str, ...]:
        """The scan columns that the column is made from."""
        return (self.scan, self.beside) if self.beside else (self.scan,)


_BODY = (Variant(types.BinaryType(), "body"), Variant(types.StringType(), "bodyText"))

_COLUMNS: dict[str, types.DataType | tuple[Variant, ...]] = {
    "topic": types.StringType(),
    "brokerName": types.StringType(),
    "queueId": types.IntegerType(),
    "queueOffset": types.LongType(),
    "msgId": types.StringType(),
    "tags": types.StringType(),
    "keys": types.ArrayType(types.StringType()),
    "body": _BODY,
    "properties": _STRINGS,
    "bornTimestamp": types.TimestampType(),
    "storeTimestamp": types.TimestampType(),
    "bornHost": types.StringType(),
    "storeHost": types.StringType(),
    "flag": types.IntegerType(),
    "sysFlag": types.IntegerType(),
    "reconsumeTimes": types.IntegerType(),
    "physicalOffset": types.LongType(),
    "storeSize": types.IntegerType(),
    "preparedTransactionOffset": types.LongType(),
    "systemProperties": _STRINGS,
    DUE: types.TimestampType(),
    "inQueue": types.BooleanType(),
    "consumerGroup": types.StringType(),
    "originTopic": types.StringType(),
    "originMsgId": types.StringType(),
    "consumed": types.BooleanType(),
    "key": (
        Variant(types.BinaryType(), "keysText", as_binary),
        Variant(types.StringType(), "keysText"),
    ),
    "value": _BODY,
    "partition": (Variant(types.IntegerType(), "queueId"),),
    "offset": (Variant(types.LongType(), "queueOffset"),),
    "timestamp": (Variant(types.TimestampType(), "storeTimestamp"),),
    "timestampType": (Variant(types.IntegerType(), "queueId", log_append_time),),
    "headers": (Variant(HEADERS, "properties", headers_of_map),),
}
COLUMNS = {
    name: kinds if isinstance(kinds, tuple) else (Variant(kinds, name),)
    for name, kinds in _COLUMNS.items()
}
"""Every column with its types; the first type is the default."""

ROCKETMQ_DEFAULT = (
    *("topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "body"),
    *("properties", "bornTimestamp", "storeTimestamp"),
)

KAFKA_DEFAULT = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""In the order of Spark's Kafka source; `headers` is added at the end on request."""

PAYLOADS = frozenset({"body", "value"})


def default_columns(
    *, kafka: bool, headers: bool, text: bool, fields: Sequence[types.StructField] | None = None
) -> types.StructType:
    """Return the columns of a DataFrame for which the user gives no schema.

    text: whether bodies are strings. fields: the columns that replace the body; None keeps it.
    """
    names = KAFKA_DEFAULT if kafka else ROCKETMQ_DEFAULT
    if headers:
        names = (*names, "headers")
    columns: list[types.StructField] = []
    for name in names:
        if name in PAYLOADS and fields is not None:
            columns += fields
        else:
            kind = COLUMNS[name][text and name in PAYLOADS].spark_type
            columns.append(types.StructField(name, kind))
    return types.StructType(columns)


def unknown_column(message: str, name: str, names: Iterable[str], rest: str) -> SchemaError:
    """Return the error about a column that does not exist; its remedy ends with `rest`."""
    near = nearest(name, names)
    suggestion = f"Did you mean {near!r}? " if near else ""
    return SchemaError(message, remedy=suggestion + rest, code="COLUMN_UNKNOWN")


def wrong_type(name: str, kind: str, remedy: str) -> SchemaError:
    """Return the error about a column that cannot have this type."""
    return SchemaError(f"Column {name!r} cannot be {kind}.", remedy=remedy, code="COLUMN_TYPE")
