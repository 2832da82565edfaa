"""The columns of a read: RocketMQ's, and those of Spark's Kafka source. Pure.

Each column has one type; the columns for bodies and keys have two. The type determines the scan
column from which the column is made, and the conversion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_pyrocket.arrow_types import as_binary, headers_of_map, log_append_time

Convert = Callable[..., pa.Array]
"""Makes a column. Called with the scan columns that it needs, in order, and its Arrow type."""

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
DUE = "dueTimestamp"
"""The time at which a pending message is due; only views have this column."""

_STRINGS = MapType(StringType(), StringType())


@dataclass(frozen=True)
class Variant:
    """A column in one of its types: the scan column that it comes from, and the conversion.

    beside: another scan column that `convert` needs, or "".
    """

    spark_type: DataType
    scan: str
    convert: Convert | None = None
    beside: str = ""

    @property
    def scanned(self) -> tuple[str, ...]:
        """The scan columns that the column is made from."""
        return (self.scan, self.beside) if self.beside else (self.scan,)


def _plain(name: str, spark_type: DataType) -> tuple[str, tuple[Variant, ...]]:
    return name, (Variant(spark_type, name),)


_BODY = (Variant(BinaryType(), "body"), Variant(StringType(), "bodyText"))

COLUMNS: dict[str, tuple[Variant, ...]] = dict(
    [
        _plain("topic", StringType()),
        _plain("brokerName", StringType()),
        _plain("queueId", IntegerType()),
        _plain("queueOffset", LongType()),
        _plain("msgId", StringType()),
        _plain("tags", StringType()),
        _plain("keys", ArrayType(StringType())),
        ("body", _BODY),
        _plain("properties", _STRINGS),
        _plain("bornTimestamp", TimestampType()),
        _plain("storeTimestamp", TimestampType()),
        _plain("bornHost", StringType()),
        _plain("storeHost", StringType()),
        _plain("flag", IntegerType()),
        _plain("sysFlag", IntegerType()),
        _plain("reconsumeTimes", IntegerType()),
        _plain("physicalOffset", LongType()),
        _plain("storeSize", IntegerType()),
        _plain("preparedTransactionOffset", LongType()),
        _plain("systemProperties", _STRINGS),
        _plain(DUE, TimestampType()),
        _plain("inQueue", BooleanType()),
        _plain("consumerGroup", StringType()),
        _plain("originTopic", StringType()),
        _plain("originMsgId", StringType()),
        _plain("consumed", BooleanType()),
        (
            "key",
            (Variant(BinaryType(), "keysText", as_binary), Variant(StringType(), "keysText")),
        ),
        ("value", _BODY),
        ("partition", (Variant(IntegerType(), "queueId"),)),
        ("offset", (Variant(LongType(), "queueOffset"),)),
        ("timestamp", (Variant(TimestampType(), "storeTimestamp"),)),
        ("timestampType", (Variant(IntegerType(), "queueId", log_append_time),)),
        ("headers", (Variant(HEADERS, "properties", headers_of_map),)),
    ]
)
"""Every column with its types; the first type is the default."""

ROCKETMQ_DEFAULT = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "msgId",
    "tags",
    "keys",
    "body",
    "properties",
    "bornTimestamp",
    "storeTimestamp",
)

KAFKA_DEFAULT = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""In the order of Spark's Kafka source; `headers` is added at the end on request."""

PAYLOADS = frozenset({"body", "value"})


def default_columns(
    *,
    kafka: bool,
    headers: bool,
    text: bool,
    fields: Sequence[StructField] | None = None,
) -> StructType:
    """Return the columns of a DataFrame for which the user gives no schema.

    text: whether bodies are strings. fields: the columns that replace the body; None keeps it.
    """
    names = KAFKA_DEFAULT if kafka else ROCKETMQ_DEFAULT
    if headers:
        names = (*names, "headers")
    columns: list[StructField] = []
    for name in names:
        if name in PAYLOADS and fields is not None:
            columns += fields
        else:
            columns.append(StructField(name, _default_type(name, text)))
    return StructType(columns)


def _default_type(name: str, text: bool) -> DataType:
    return COLUMNS[name][text and name in PAYLOADS].spark_type
