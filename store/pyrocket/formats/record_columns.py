"""Decodes a slice of raw records to Arrow columns, for all reads.

A slice is a run of log bytes and the ConsumeQueue entries of one queue that point into it. Only the
requested columns are built, without a loop over records, except for checksums and compressed
bodies. Bodies may inflate to a thousand times their size. So one call inflates bodies only up to a
limit; it uses at most twice the limit, plus the body that exceeds it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.base.arguments import check_texts
from pyrocket.errors import SchemaError, StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints, gather, is_utf8
from pyrocket.formats.compression import COMPRESS_BODY_FROM_BYTES, LACKS_FLAG, inflate, lacks_flag
from pyrocket.formats.message_keys import hex_column, words_of
from pyrocket.formats.properties import (
    KEY_ENCODING_PROPERTY,
    KEYS,
    NULL_BODY_PROPERTY,
    TAGS,
    UNIQ_KEY,
)
from pyrocket.formats.record import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    SYS_STORE_HOST_V6,
    host_text,
)
from pyrocket.formats.record_crc import check_crcs
from pyrocket.formats.record_fields import RecordFields
from pyrocket.values.message import MessageQueue


def plain_bodies(fields: RecordFields, most: int) -> pa.BinaryArray:
    """Return decompressed bodies of the first records, until they have `most` bytes together.

    Returns all bodies if none is compressed. Raises StoreDamagedError.
    """
    compressed = (fields.sys_flag & SYS_COMPRESSED) != 0
    rows = np.flatnonzero(compressed)
    if not len(rows):
        _check_flags(fields)
        return fields.bodies()
    # More bodies would exceed the limit anyway: senders do not compress shorter bodies.
    head = rows[: max(most // COMPRESS_BODY_FROM_BYTES, 1)]
    others = np.cumsum(np.where(compressed, 0, fields.body_length))
    plain = _inflate_some(fields, head, most - others[head])
    if not plain:
        fields = fields.head(int(rows[0]))
    elif len(plain) < len(rows) or sum(map(len, plain)) + others[-1] >= most:
        fields = fields.head(int(rows[len(plain) - 1]) + 1)
    _check_flags(fields)
    return _put_in(fields, rows[: len(plain)], plain)


def _inflate_some(fields: RecordFields, rows: Ints, room: Ints) -> list[bytes]:
    """Return the decompressed bodies of `rows`, up to the first row without room.

    A row has room if the previous bodies have fewer bytes than its `room`.
    """
    data = memoryview(fields.buffer)
    starts = fields.body_start[rows]
    columns = (starts, starts + fields.body_length[rows], fields.sys_flag[rows], room)
    plain: list[bytes] = []
    total = 0
    for start, end, flag, most in zip(*(column.tolist() for column in columns), strict=True):
        if total >= most:
            break
        try:
            body = inflate(bytes(data[start:end]), flag)
        except StoreDamagedError:
            sound = np.ones(len(fields), bool)
            sound[rows[len(plain)]] = False
            fields.demand(sound, "its compressed body does not inflate")
            raise
        plain.append(body)
        total += len(body)
    return plain


def _put_in(fields: RecordFields, rows: Ints, plain: list[bytes]) -> pa.BinaryArray:
    """Return the bodies as stored, with those at `rows` replaced by `plain`."""
    inflated = pa.array(plain, pa.binary())
    plain.clear()  # Their memory is needed for the result.
    if len(rows) == len(fields):
        return inflated
    is_inflated = np.zeros(len(fields), bool)
    is_inflated[rows] = True
    return pc.replace_with_mask(fields.bodies(), pa.array(is_inflated), inflated)


def _check_flags(fields: RecordFields) -> None:
    """Raise StoreDamagedError if a body is compressed, but not flagged as compressed."""
    flags = fields.sys_flag
    doubtful = ((flags & SYS_COMPRESSION_MASK) != 0) & ((flags & SYS_COMPRESSED) == 0)
    if not doubtful.any():
        return
    bodies = fields.bodies().filter(pa.array(doubtful)).to_pylist()
    sound = ~doubtful
    sound[doubtful] = [
        not lacks_flag(*pair) for pair in zip(bodies, flags[doubtful].tolist(), strict=True)
    ]
    fields.demand(sound, LACKS_FLAG)


_CONSTANTS = 1 << 14
"""Minimum number of rows of cached constant columns; a slice of a scan never has more rows."""

PLAIN_BYTES = 4 * 1024 * 1024
"""A batch ends with the body at which decompressed bodies reach this size; slices are limited by
stored bytes."""

_BODIES = frozenset(("body", "bodyText"))

_TIMESTAMP = pa.timestamp("us", "UTC")
_MAP = pa.map_(pa.string(), pa.string())

SCAN_COLUMNS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "msgId": pa.string(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "keysText": pa.string(),
    "keyEncoding": pa.string(),
    "body": pa.binary(),
    "bodyText": pa.string(),
    "nullBody": pa.bool_(),
    "properties": _MAP,
    "systemProperties": _MAP,
    "bornTimestamp": _TIMESTAMP,
    "storeTimestamp": _TIMESTAMP,
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "physicalOffset": pa.int64(),
    "storeSize": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
}
"""All columns that a scan can return, with their Arrow types.

`nullBody`: whether an empty body represents null. `keyEncoding`: the encoding of KEYS. See
`formats.properties`.
"""


def check_columns(columns: Sequence[str], known: Iterable[str] = SCAN_COLUMNS) -> None:
    """Raise SchemaError (COLUMN_UNKNOWN) if there is no column or an unknown column."""
    check_texts(columns=columns)
    known = list(known)
    unknown = [name for name in columns if name not in known]
    if unknown or not columns:
        raise SchemaError(
            f"these messages have no column {unknown[0]!r}." if unknown else "there is no column.",
            remedy=f"They have {', '.join(known)}.",
            code="COLUMN_UNKNOWN",
        )


SEVERAL_QUEUES = -1
"""Queue id of a slice with records of several queues."""


def build_columns(
    fields: RecordFields, queue: MessageQueue, columns: Sequence[str], *, verify_crc: bool = False
) -> pa.RecordBatch:
    """Return the columns of checked records of a queue, or of SEVERAL_QUEUES of a topic.

    If bodies inflate to more than PLAIN_BYTES, the batch has only the first records. Raises
    StoreDamagedError, and SchemaError for a `bodyText` that is not UTF-8.
    """
    decoder = _Decoder(fields, queue)
    if not _BODIES.isdisjoint(columns):
        decoder.inflate()
    if verify_crc:
        check_crcs(decoder.fields)
    arrays = [_BUILDERS[name](decoder) for name in columns]
    schema = pa.schema([(name, SCAN_COLUMNS[name]) for name in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Decoder:
    """Builds columns of one slice; values that several columns need are computed on first use."""

    bodies: pa.BinaryArray

    def __init__(self, fields: RecordFields, queue: MessageQueue) -> None:
        self.fields, self.queue = fields, queue

    def inflate(self) -> None:
        """Inflate the bodies; keep only the first records if the bodies are too large."""
        self.bodies = plain_bodies(self.fields, PLAIN_BYTES)
        if len(self.bodies) < len(self.fields):
            self.fields = self.fields.head(len(self.bodies))

    def body_text(self) -> pa.StringArray:
        try:
            return self.bodies.cast(pa.string())
        except pa.ArrowInvalid:
            raise self._invalid_text() from None

    def null_bodies(self) -> pa.BooleanArray:
        """Return which empty bodies represent null; reads properties only if there are any."""
        empty = self.fields.body_length == 0
        if not empty.any():
            return pa.array(empty)
        marks = self.fields.property_columns.column(NULL_BODY_PROPERTY)
        return pc.and_(pa.array(empty), pc.fill_null(pc.equal(marks, "body"), False))

    def _invalid_text(self) -> SchemaError:
        is_text = [is_utf8(body) for body in self.bodies.to_pylist()]
        row = is_text.index(False)
        queue_id, offset = self.fields.queue_id[row], self.fields.queue_offset[row]
        return SchemaError(
            f"the body of {self.queue.topic!r} queue {queue_id} offset {offset} is not UTF-8.",
            remedy="Read `body` as BINARY and decode it in the query.",
            code="BODY_NOT_UTF8",
        )

    def constant(self, value: str | int, kind: pa.DataType) -> pa.Array:
        most = max(_CONSTANTS, 1 << (len(self.fields) - 1).bit_length())
        return _repeated(value, kind, most).slice(0, len(self.fields))

    def queue_ids(self) -> pa.Int32Array:
        if self.queue.queue_id == SEVERAL_QUEUES:
            return pa.array(self.fields.queue_id, pa.int32())
        return self.constant(self.queue.queue_id, pa.int32())

    def message_ids(self) -> pa.StringArray:
        ids = self.fields.property_columns.column(UNIQ_KEY)
        if ids.null_count == 0:
            return ids
        return pc.coalesce(ids, self._offset_ids())

    def _offset_ids(self) -> pa.StringArray:
        """Return host, port and physical offset in hex; IPv4 and IPv6 are built separately."""
        fields = self.fields
        is_v6 = (fields.sys_flag & SYS_STORE_HOST_V6) != 0
        host = fields.starts + (64 + fields.after_born_host)
        made = []
        for width, rows in ((8, np.flatnonzero(~is_v6)), (20, np.flatnonzero(is_v6))):
            raw = np.empty((len(rows), width + 8), np.uint8)
            raw[:, :width] = fields.data[host[rows][:, None] + np.arange(width)]
            raw[:, width:] = (
                gather(fields.data, fields.starts[rows] + 28, "V8").view(np.uint8).reshape(-1, 8)
            )
            made.append(hex_column(raw))
        order = np.argsort(np.concatenate((np.flatnonzero(~is_v6), np.flatnonzero(is_v6))))
        return pa.concat_arrays(made).take(pa.array(order))

    def hosts(self, offset: int, after: int | np.ndarray, bit: int) -> pa.StringArray:
        """Return `address:port` of each record; each distinct text is built once."""
        starts = self.fields.starts + (offset + after)
        is_v6 = (self.fields.sys_flag & bit) != 0
        raw = np.zeros((len(starts), 21), np.uint8)
        raw[:, 0] = is_v6
        raw[:, 1:9] = self.fields.data[starts[:, None] + np.arange(8)]
        if is_v6.any():
            raw[is_v6, 1:] = self.fields.data[starts[is_v6][:, None] + np.arange(20)]
        distinct, which = np.unique(raw.view("V21").ravel(), return_inverse=True)
        texts = [_host_of(value.tobytes()) for value in distinct]
        return pa.array(texts, pa.string()).take(pa.array(which.ravel()))

    def timestamps(self, milliseconds: np.ndarray) -> pa.Array:
        return pa.array(milliseconds * 1000).view(_TIMESTAMP)


@lru_cache(maxsize=32)
def _repeated(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """Return the value `count` times; slices of a scan share the array."""
    return pa.repeat(pa.scalar(value, kind), count)


def _host_of(raw: bytes) -> str:
    width = 16 if raw[0] else 4
    port = int.from_bytes(raw[1 + width : 5 + width], "big", signed=True)
    return host_text(raw[1 : 1 + width], port)


def _split_keys(text: pa.StringArray) -> pa.ListArray:
    """Split at spaces; drop empty parts. Missing KEYS become an empty list."""
    words, rows = words_of(text)
    return pa.ListArray.from_arrays(
        pa.array(np.searchsorted(rows, np.arange(len(text) + 1)), pa.int32()), words
    )


_BUILDERS: dict[str, Callable[[_Decoder], pa.Array]] = {
    "topic": lambda d: d.constant(d.queue.topic, pa.string()),
    "brokerName": lambda d: d.constant(d.queue.broker, pa.string()),
    "queueId": _Decoder.queue_ids,
    "queueOffset": lambda d: pa.array(d.fields.queue_offset),
    "msgId": _Decoder.message_ids,
    "tags": lambda d: d.fields.property_columns.column(TAGS),
    "keys": lambda d: _split_keys(d.fields.property_columns.column(KEYS)),
    "keysText": lambda d: d.fields.property_columns.column(KEYS),
    "keyEncoding": lambda d: d.fields.property_columns.column(KEY_ENCODING_PROPERTY),
    "body": lambda d: d.bodies,
    "bodyText": _Decoder.body_text,
    "nullBody": _Decoder.null_bodies,
    "properties": lambda d: d.fields.property_columns.as_map(reserved=False),
    "systemProperties": lambda d: d.fields.property_columns.as_map(reserved=True),
    "bornTimestamp": lambda d: d.timestamps(d.fields.field("born_timestamp")),
    "storeTimestamp": lambda d: d.timestamps(d.fields.store_timestamp),
    "bornHost": lambda d: d.hosts(48, 0, 0x10),
    "storeHost": lambda d: d.hosts(64, d.fields.after_born_host, SYS_STORE_HOST_V6),
    "flag": lambda d: pa.array(d.fields.field("flag")),
    "sysFlag": lambda d: pa.array(d.fields.sys_flag),
    "reconsumeTimes": lambda d: pa.array(d.fields.field("reconsume_times", d.fields.after_hosts)),
    "physicalOffset": lambda d: pa.array(d.fields.physical_offset),
    "storeSize": lambda d: pa.array(d.fields.sizes.astype(np.int32)),
    "preparedTransactionOffset": lambda d: pa.array(
        d.fields.field("prepared_transaction_offset", d.fields.after_hosts)
    ),
}

assert _BUILDERS.keys() == SCAN_COLUMNS.keys()
