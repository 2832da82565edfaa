"""Encodes Arrow columns as the requests that store them: batches, and single delayed messages.

A batch is a run of items: size (i32, of the item), magic and crc (i32, 0: the broker sets them),
flag (i32), body (i32 length, bytes), properties (i16 length, bytes). All bodies are compressed or
none is, because the request has one sysFlag. Source: `MessageDecoder.encodeMessages`.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.engine.delayed_routing import due_times, number_property, with_properties
from pyrocket.engine.message_encoder import order_by_queue
from pyrocket.formats.arrow_buffers import Bools, Ints
from pyrocket.formats.compression import COMPRESS_BODY_FROM_BYTES, COMPRESSED_FLAGS
from pyrocket.formats.content_sum import row_sums
from pyrocket.formats.message_keys import hex_column
from pyrocket.formats.properties import DELAY, TIMER_DELIVER_MS
from pyrocket.formats.record_batch import compress_bodies, fixed_width, join_properties
from pyrocket.formats.send_columns import SendColumns
from pyrocket.remoting.calls import ServerCall
from pyrocket.remoting.requests import SendAnswer, send
from pyrocket.values.message import MessageQueue

BATCH_BYTES = 512 << 10
"""The size of a batch, unless one message is longer. A broker accepts records of 4 MiB in all."""

_HEAD = np.dtype([(name, ">i4") for name in ("size", "magic", "crc", "flag", "body_length")])
_ITEM_BYTES = _HEAD.itemsize + 2
_ID = np.dtype(
    [("append", "V6"), ("row", ">u4"), ("time", "V4"), ("sum", ">u8"), ("length", ">u2")]
)


def message_ids(append: str, columns: SendColumns, topics: pa.StringArray | None) -> pa.StringArray:
    """Return ids that the same rows get again if an append is repeated, and other rows do not.

    append: Identifies the append. `topics` is the topic column, if any.
    They begin with a hash of the append, to which the row is added, and end with checksums of the
    content. RocketMQ's tools take bytes 10 to 13 for a time; with 0 they search the whole month
    (`MessageClientIDSetter.getNearlyTimeFromID`).
    """
    begin = sha256(append.encode()).digest()
    ids = np.zeros(len(columns), _ID)
    ids["append"] = np.frombuffer(begin, "V6", 1)
    ids["row"] = np.arange(len(columns)) + int.from_bytes(begin[6:10], "big")
    ids["sum"], ids["length"] = row_sums(columns, topics), pc.binary_length(columns.body)
    return hex_column(ids.view(np.uint8).reshape(len(columns), _ID.itemsize))


class OutgoingRows(NamedTuple):
    """Columns of messages that one request stores in one queue; `properties` are encoded.

    is_delayed: Whether it is a message with a delay, which a batch cannot have.
    is_free: Whether another queue of the topic would do as well.
    """

    body: pa.BinaryArray
    flag: Ints
    properties: pa.BinaryArray
    is_delayed: bool
    is_free: bool

    def part(self, rows: slice) -> "OutgoingRows":
        """Return some of the rows."""
        body, flag, properties = self.body[rows], self.flag[rows], self.properties[rows]
        return self._replace(body=body, flag=flag, properties=properties)

    def call(self, queue: MessageQueue, born_ms: int) -> ServerCall[SendAnswer]:
        """Return the request for a queue."""
        body, sys_flag, alone = self.body, 0, self.is_delayed
        if pc.min(pc.binary_length(body)).as_py() >= COMPRESS_BODY_FROM_BYTES:
            deflated, flags = compress_bodies(body)
            if flags.all():
                body, sys_flag = deflated, COMPRESSED_FLAGS
        data = body[0].as_buffer() if alone else _items(body, self.flag, self.properties)
        return send(
            queue.topic,
            queue.queue_id,
            memoryview(data),
            group="pyrocket",
            born_ms=born_ms,
            properties=self.properties[0].as_py().decode() if alone else "",
            flag=int(self.flag[0]) if alone else 0,
            sys_flag=sys_flag,
            is_batch=not alone,
        )


def _items(body: pa.BinaryArray, flag: Ints, properties: pa.BinaryArray) -> pa.Buffer:
    lengths = pc.binary_length(body).to_numpy()
    property_lengths = pc.binary_length(properties).to_numpy()
    head = np.zeros(len(body), _HEAD)
    head["size"] = lengths + property_lengths + _ITEM_BYTES
    head["flag"], head["body_length"] = flag, lengths
    joined = pc.binary_join_element_wise(
        fixed_width(head.view(np.uint8), _HEAD.itemsize),
        body,
        fixed_width(property_lengths.astype(">u2").view(np.uint8), 2),
        properties,
        pa.scalar(b"", pa.binary()),
    )
    return joined.buffers()[2]


def outgoing_rows(
    columns: SendColumns, ids: pa.StringArray, queue_ids: npt.NDArray[np.int32], now_ms: int
) -> Iterator[tuple[int, OutgoingRows]]:
    """Yield the rows by queue, each queue in order. Raises MessageError, which names the row."""
    delays = {DELAY: columns.delay_level, TIMER_DELIVER_MS: due_times(columns, now_ms)}
    delayed = _is_given(len(columns), *delays.values())
    bound = _is_given(len(columns), columns.sharding_key, columns.queue_id)
    for name, values in delays.items():
        if values is not None:
            columns = with_properties(columns, number_property(name, values))
    properties = join_properties(columns, ids)
    body, flag = columns.body, np.zeros(len(columns), np.int32)
    if columns.flag is not None:
        flag = pc.fill_null(columns.flag, 0).to_numpy()
    order = order_by_queue(queue_ids)
    if order is not None:
        at, body, properties = order.to_numpy(), body.take(order), properties.take(order)
        queue_ids, flag, delayed, bound = (array[at] for array in (queue_ids, flag, delayed, bound))
    sizes = pc.add(pc.binary_length(body), pc.binary_length(properties)).to_numpy()
    for start, end in _cuts(sizes.astype(np.int64) + _ITEM_BYTES, queue_ids, delayed):
        rows = slice(start, end)
        is_free = not bound[rows].any()
        outgoing = body[rows], flag[rows], properties[rows], bool(delayed[start]), is_free
        yield int(queue_ids[start]), OutgoingRows(*outgoing)


def _is_given(rows: int, *columns: pa.Array | None) -> Bools:
    given = np.zeros(rows, bool)
    for values in columns:
        if values is not None:
            given |= values.is_valid().to_numpy(zero_copy_only=False)
    return given


def _cuts(sizes: Ints, queue_ids: Ints, alone: Bools) -> Iterator[tuple[int, int]]:
    """Yield the rows of each request: of one queue, at most BATCH_BYTES, or one row."""
    totals = np.cumsum(sizes)
    changes = (queue_ids[1:] != queue_ids[:-1]) | alone[1:] | alone[:-1]
    start = 0
    for end in (*(np.flatnonzero(changes) + 1).tolist(), len(sizes)):
        while start < end:
            most = int(totals[start] - sizes[start]) + BATCH_BYTES
            last = max(start + 1, min(int(np.searchsorted(totals, most, side="right")), end))
            yield start, last
            start = last
