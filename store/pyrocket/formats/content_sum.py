"""Summarizes the content of a batch in two numbers: its size, and the sum of its rows' checksums.

These numbers show whether a replayed micro-batch equals the published one. So they cover exactly
what the query produces:

- covered: body, tags, keys, properties, sharding key, flag, the queue given in a row, its delay
  column as given, and its topic if a column contains it;
- not covered: values that differ in an exact replay. These are the message id, the born time and
  host, the queue chosen for a row, whether a due time has passed, and the compression of a body.

The sum does not depend on the order of the rows or on their distribution over tasks and queues,
which Spark may change from run to run.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import crc32_of_values, text_bytes, views_of_values
from pyrocket.formats.checksum import adler32, crc32
from pyrocket.formats.send_columns import SendColumns
from pyrocket.values.sink import ContentSum

_MASK = 2**63 - 1
_BINARY = pa.binary()
_SHIFT = np.uint64(32)
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
"""Odd numbers with about as many ones as zeros in binary, which spread 32 bits over 64."""


def content_sum(
    columns: SendColumns, topics: pa.StringArray | None = None
) -> tuple[ContentSum, SendColumns]:
    """Return the sum of the rows, and the columns with the checksums of bodies added.

    `topics` is the topic column, if any. The number of a row combines two CRC-32, of its body and
    of its attributes. Attributes are encoded as in a properties block, `name \\x01 value \\x02`,
    without nulls.
    """
    crcs = crc32_of_values(columns.body)
    rows, size = crcs.astype(np.uint64), len(text_bytes(columns.body))
    attributes = _attributes(columns, topics)
    if attributes is not None:
        size += len(text_bytes(attributes))
        rows ^= _spread(attributes)
    total = int(_mixed(rows).sum(dtype=np.uint64)) & _MASK
    return ContentSum(size, total), replace(columns, body_crc=pa.array(crcs))


def row_sums(columns: SendColumns, topics: pa.StringArray | None) -> npt.NDArray[np.uint64]:
    """Return a checksum of each row, of 64 bits: two different ones of its body, and attributes."""
    sums = (crc32(body) | adler32(body) << 32 for body in views_of_values(columns.body))
    rows = np.fromiter(sums, np.uint64, len(columns))
    attributes = _attributes(columns, topics)
    return rows if attributes is None else rows ^ _spread(attributes)


def _spread(attributes: pa.BinaryArray) -> npt.NDArray[np.uint64]:
    return crc32_of_values(attributes).astype(np.uint64) * _FACTORS[0]


def _mixed(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers whose sum changes if two rows exchange their attributes."""
    return (rows ^ (rows >> _SHIFT)) * _FACTORS[1] ^ rows


def _attributes(columns: SendColumns, topics: pa.StringArray | None) -> pa.BinaryArray | None:
    named = {
        "topic": topics,
        "keys": columns.keys,
        "tags": columns.tags,
        "shardingKey": columns.sharding_key,
        "queueId": columns.queue_id,
        "flag": columns.flag,
        "delayLevel": columns.delay_level,
        "delay": columns.delay,
        "deliverTimestamp": columns.deliver_at,
    }
    pieces = [_attribute(name, values) for name, values in named.items() if values is not None]
    if columns.properties is not None:
        pieces.append(pc.fill_null(columns.properties.cast(_BINARY), b""))
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", _BINARY)) if pieces else None


def _attribute(name: str, values: pa.Array) -> pa.BinaryArray:
    text = values.cast(pa.string()).cast(_BINARY)
    pair = pc.binary_join_element_wise(f"{name}\x01".encode(), text, b"\x02", b"")
    return pc.fill_null(pair, b"")
