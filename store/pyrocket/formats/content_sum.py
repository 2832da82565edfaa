"""What the rows of a batch say, as two numbers: how many bytes, and the sum of their checksums.

A replayed micro-batch is compared with what was published by these numbers, so they cover what the
query makes and nothing else:

- covered: body, tags, keys, properties, sharding key, flag, the queue that a row names, its delay
  as given, and its topic where a column names it;
- not covered: what differs in an exact replay. The message id, the born time and host, the queue
  that was chosen for a row, whether a due time has passed meanwhile, how a body was compressed.

A sum over rows does not depend on the order of the rows or on their split over tasks and queues,
which Spark may change from run to run.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.runs import crc32_of_runs, run_offsets, text_bytes
from pyrocket.formats.send_columns import SendColumns

_MASK = 2**63 - 1
_BINARY = pa.binary()
_NOTHING = pa.scalar(b"", _BINARY)


class ContentSum(NamedTuple):
    """bytes: of bodies and attributes. sum: of each row's CRC-32, modulo 2⁶³."""

    bytes: int = 0
    sum: int = 0

    def plus(self, other: "ContentSum") -> "ContentSum":
        """Return the sum of both, whatever rows they are of."""
        return ContentSum(self.bytes + other.bytes, (self.sum + other.sum) & _MASK)


def content_sum(columns: SendColumns, topics: pa.StringArray | None = None) -> ContentSum:
    """Return the sum of the rows; `topics` is the column that names each row's topic, if any.

    A row's attributes stand before its body as in a properties block, `name \\x01 value \\x02`;
    one that is null is left out.
    """
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
    rows = columns.body
    if pieces:
        rows = pc.binary_join_element_wise(*pieces, rows, _NOTHING)
    return ContentSum(len(text_bytes(rows)), _sum_of_checksums(rows))


def _attribute(name: str, values: pa.Array) -> pa.BinaryArray:
    text = values.cast(pa.string()).cast(_BINARY)
    pair = pc.binary_join_element_wise(f"{name}\x01".encode(), text, b"\x02", b"")
    return pc.fill_null(pair, b"")


def _sum_of_checksums(rows: pa.BinaryArray) -> int:
    if rows.buffers()[2] is None:
        return 0
    bounds = run_offsets(rows)
    return int(crc32_of_runs(rows.buffers()[2], bounds[:-1], bounds[1:]).sum()) & _MASK
