"""Encodes Arrow columns as CommitLog records, for all batch appends.

The records are joined in one pass over all columns. Fields that are only known under the write lock
(queue offset, physical offset and store time) are zeros, which `EncodedBatch.place` replaces in
place, without a copy. `with_crc_room` leaves room for a checksum of each whole record.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.errors import MessageError
from pyrocket.formats.arrow_buffers import Ints, crc32_of_values, run_offsets
from pyrocket.formats.compression import COMPRESS_BODY_FROM_BYTES, COMPRESSED_FLAGS, deflate
from pyrocket.formats.hashes import hashes_of_tags, java_hash
from pyrocket.formats.message_keys import MessageKeys, keys_of_batch
from pyrocket.formats.properties import KEYS, MAX_PROPERTIES_BYTES, SHARDING_KEY, TAGS, UNIQ_KEY
from pyrocket.formats.record import (
    BLANK_BYTES,
    CRC_MASK,
    FIXED_BYTES,
    HEADER,
    HEADER_BYTES,
    HOST_V6_EXTRA,
    MAGIC_V1,
    SYS_BORN_HOST_V6,
)
from pyrocket.formats.record_crc import CRC_BYTES, OUR_HOST, crc_tails, write_crcs
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.send_columns import SendColumns

ENCODE_BYTES = 32 * 1024 * 1024
"""Approximate size of the records that are joined at once, so that offsets stay below 2³¹."""

_SORTED_IN_MS = 5000

_HEAD_BYTES = 8
"""Size and magic. For readers, the log ends at a record without them."""


@dataclass(frozen=True)
class EncodedBatch:
    """Encoded records of one topic, without offsets and store time.

    `bounds` (n + 1) are the records' offsets in `data`; rows of one queue are adjacent, in order.
    `keys` is None if keys were not extracted. With `born_v6`, some records have IPv6 born hosts.
    `delays` are the times (ms) from store time to due time of records with delay levels. `due` is
    the earliest due time (epoch ms) of records with a due time of their own. With `crc_room`, some
    records have room for a checksum of the whole record.
    """

    topic: str
    data: pa.Buffer
    bounds: Ints
    queue_ids: npt.NDArray[np.int32]
    tags_codes: Ints
    keys: MessageKeys | None = None
    born_v6: bool = False
    delays: Ints | None = None
    due: int | None = None
    crc_room: bool = False

    def __len__(self) -> int:
        return len(self.queue_ids)

    @cached_property
    def sizes(self) -> Ints:
        """The sizes of the records in bytes."""
        return self.bounds[1:] - self.bounds[:-1]

    def load(self) -> "EncodedBatch":
        """Return this batch, which is already in memory."""
        return self

    def withhold_head(self) -> bytes:
        """Set size and magic of the first record to zero; return their bytes."""
        head = ctypes.string_at(self.data.address, _HEAD_BYTES)
        ctypes.memset(self.data.address, 0, _HEAD_BYTES)
        return head

    def stored(self, row: int) -> bytes:
        """Return a placed record, including size and magic."""
        first, last = self.bounds[row : row + 2].tolist()
        head = (last - first).to_bytes(4, "big") + MAGIC_V1.to_bytes(4, "big")
        return head + self.data[first + _HEAD_BYTES : last].to_pybytes()

    def writable(self) -> npt.NDArray[np.uint8]:
        """Return the bytes of `data` for writing in place.

        Writing is legal while the batch is encoded and placed, because its buffer is not shared
        yet.
        """
        raw = (ctypes.c_ubyte * self.data.size).from_address(self.data.address)
        return np.frombuffer(raw, np.uint8)

    def headers(self) -> npt.NDArray[np.void]:
        """Return a header view at each byte of `data` for writing in place."""
        data = self.writable()
        return np.ndarray((len(data) - HEADER_BYTES + 1,), HEADER, data, strides=(1,))

    def place(self, physical_offsets: Ints, queue_offsets: Ints, store_timestamp: int) -> None:
        """Write offsets and store time into the records, and set due times and checksums."""
        every, starts = self.headers(), self.bounds[:-1]
        every["queue_offset"][starts] = queue_offsets
        every["physical_offset"][starts] = physical_offsets
        if self.born_v6:
            longer = every["sys_flag"][starts] & SYS_BORN_HOST_V6 != 0
            starts = starts + longer * np.int64(HOST_V6_EXTRA)
        every["store_timestamp"][starts] = store_timestamp
        if self.delays is not None:
            self.tags_codes[:] = store_timestamp + self.delays
        if self.crc_room:
            write_crcs(self.writable(), self.bounds)

    def earliest_due(self, store_timestamp: int) -> int | None:
        """Return the time (epoch ms) at which a service must process these records, or None.

        That is the first due time, or earlier for timers, which are indexed in bulk before they are
        due. `store_timestamp` is the records' store time.
        """
        if self.delays is not None:
            return store_timestamp + int(self.delays.min())
        return None if self.due is None else min(self.due, store_timestamp + _SORTED_IN_MS)


@dataclass(frozen=True)
class StagedBatch:
    """The columns of an EncodedBatch; `read` returns its records, which may be read once."""

    topic: str
    sizes: Ints
    queue_ids: npt.NDArray[np.int32]
    tags_codes: Ints
    keys: MessageKeys | None
    delays: Ints | None
    due: int | None
    crc_room: bool
    read: Callable[[], pa.Buffer]

    def __len__(self) -> int:
        return len(self.queue_ids)

    def load(self) -> EncodedBatch:
        """Return the records. They may be changed, and are valid until the next `load`."""
        return EncodedBatch(
            topic=self.topic,
            data=self.read(),
            bounds=np.append(0, np.cumsum(self.sizes)),
            queue_ids=self.queue_ids,
            tags_codes=self.tags_codes.copy(),
            keys=self.keys,
            delays=self.delays,
            due=self.due,
            crc_room=True,
        )


Chunk = EncodedBatch | StagedBatch


def batch_of_records(
    topic: str, queue_id: int, records: Sequence[bytes], tags: str, keys: MessageKeys
) -> EncodedBatch:
    """Return a batch of encoded records of one queue with the same tags ("" for none)."""
    return EncodedBatch(
        topic=topic,
        data=pa.py_buffer(bytearray(b"".join(records))),
        bounds=np.cumsum([0, *map(len, records)]),
        queue_ids=np.full(len(records), queue_id, np.int32),
        tags_codes=np.full(len(records), java_hash(tags), np.int64),
        keys=keys,
    )


def encode_batch(
    columns: SendColumns,
    topic: str,
    queue_ids: npt.NDArray[np.int32],
    unique_ids: pa.StringArray,
    born_timestamp: int,
    *,
    delays: Ints | None = None,
    dues: Ints | None = None,
    max_bytes: int = ENCODE_BYTES,
) -> Iterator[EncodedBatch]:
    """Encode the rows as batches of at most `max_bytes`, or of one row. Raises MessageError.

    `delays` and `dues` have one element per row: see `EncodedBatch`.
    """
    properties = join_properties(columns, unique_ids)
    lengths = pc.binary_length(columns.body).to_numpy().astype(np.int64)
    fixed = FIXED_BYTES + len(topic.encode())
    totals = np.cumsum(lengths + pc.binary_length(properties).to_numpy() + fixed)
    start = 0
    while start < len(columns):
        before = totals[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(totals, before + max_bytes, side="right")))
        rows = columns.slice(start, end - start)
        block = properties.slice(start, end - start)
        keys = keys_of_batch(topic, unique_ids.slice(start, end - start), rows.keys)
        encoded = _encode(rows, topic, queue_ids[start:end], block, keys, born_timestamp)
        yield replace(
            encoded,
            delays=None if delays is None else delays[start:end],
            due=None if dues is None else int(dues[start:end].min()),
        )
        start = end


def _encode(
    rows: SendColumns,
    topic: str,
    queue_ids: npt.NDArray[np.int32],
    properties: pa.BinaryArray,
    keys: MessageKeys,
    born_timestamp: int,
) -> EncodedBatch:
    name = topic.encode()
    body, sys_flags = compress_bodies(rows.body)
    body_lengths = pc.binary_length(body).to_numpy()
    property_lengths = pc.binary_length(properties).to_numpy()
    header = np.zeros(len(rows), HEADER)
    header["size"] = FIXED_BYTES + len(name) + body_lengths + property_lengths
    header["magic"] = MAGIC_V1
    header["crc"] = _checksums(rows, body, sys_flags) & CRC_MASK
    header["queue_id"] = queue_ids
    if rows.flag is not None:
        header["flag"] = pc.fill_null(rows.flag, 0).to_numpy()
    header["sys_flag"] = sys_flags
    header["born_timestamp"] = born_timestamp
    header["born_host"] = header["store_host"] = OUR_HOST
    header["body_length"] = body_lengths
    joined = pc.binary_join_element_wise(
        fixed_width(header.view(np.uint8), HEADER_BYTES),
        body,
        pa.scalar(bytes((len(name),)) + name, pa.binary()),
        fixed_width(property_lengths.astype(">u2").view(np.uint8), 2),
        properties,
        pa.scalar(b"", pa.binary()),
    )
    bounds = run_offsets(joined).astype(np.int64)
    codes = np.zeros(len(rows), np.int64) if rows.tags is None else hashes_of_tags(rows.tags)
    return EncodedBatch(topic, joined.buffers()[2], bounds, queue_ids, codes, keys)


def fixed_width(data: npt.NDArray[np.uint8], width: int) -> pa.BinaryArray:
    """Return the bytes as values of `width` bytes each, without a copy."""
    count = data.size // width
    offsets = np.arange(0, data.size + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _checksums(rows: SendColumns, body: pa.BinaryArray, sys_flags: Ints) -> Ints:
    """Return the CRC-32 of the stored bodies; known checksums are those of uncompressed bodies."""
    if rows.body_crc is None:
        return crc32_of_values(body)
    crcs = rows.body_crc.to_numpy()
    deflated = np.flatnonzero(sys_flags)
    if len(deflated):
        crcs = crcs.copy()
        crcs[deflated] = crc32_of_values(body.take(pa.array(deflated)))
    return crcs


def compress_bodies(body: pa.BinaryArray) -> tuple[pa.BinaryArray, npt.NDArray[np.int32]]:
    """Return the bodies to be stored, and the sysFlag of each.

    A body that would not get shorter is not compressed.
    """
    lengths = pc.binary_length(body).to_numpy()
    chosen = lengths >= COMPRESS_BODY_FROM_BYTES
    if chosen.any():
        plain = body.filter(pa.array(chosen)).to_numpy(zero_copy_only=False)
        deflated = pa.array(list(map(deflate, plain)), pa.binary())
        shorter = pc.binary_length(deflated).to_numpy() < lengths[chosen]
        chosen[chosen] = shorter
        body = pc.replace_with_mask(body, pa.array(chosen), deflated.filter(pa.array(shorter)))
    return body, np.where(chosen, COMPRESSED_FLAGS, 0).astype(np.int32)


def join_properties(columns: SendColumns, unique_ids: pa.StringArray) -> pa.BinaryArray:
    """Return the properties blocks of all rows, each ending with \\x02."""
    named = ((KEYS, columns.keys), (TAGS, columns.tags), (SHARDING_KEY, columns.sharding_key))
    pieces = [pc.binary_join_element_wise(f"{UNIQ_KEY}\x01", unique_ids, "\x02", "")]
    pieces += [
        pc.binary_join_element_wise(f"{name}\x01", values, "\x02", "")
        for name, values in named
        if values is not None
    ]
    if columns.properties is not None:
        pieces.append(columns.properties)
    blocks = pieces[0]
    if len(pieces) > 1:
        blocks = pc.binary_join_element_wise(*pieces, "", null_handling="replace")
    lengths = pc.binary_length(blocks)
    row = pc.index(pc.greater(lengths, MAX_PROPERTIES_BYTES), True).as_py()
    if row >= 0:
        raise MessageError(
            f"row {row} has {lengths[row]} bytes of properties, including message id, keys and"
            f" tags; the maximum is {MAX_PROPERTIES_BYTES}.",
            remedy="Move long values into the body.",
            code="PROPERTIES_SIZE_EXCEEDED",
        )
    return blocks.cast(pa.binary())


_ROOM = crc_tails(np.zeros(1, np.int64)).tobytes()
_ENDINGS = [b"", _ROOM, b"\x02" + _ROOM]
"""No room; room after properties that end with \\x02 or are empty; room after others."""


def with_crc_room(batch: EncodedBatch, file_bytes: int) -> EncodedBatch:
    """Return the records with room for a checksum, except those that would become too long.

    `file_bytes` is the size of the log files.
    """
    run = RecordFields(batch.data, 0, batch.bounds[:-1], batch.sizes)
    lengths, last = run.properties_length, run.data[batch.bounds[1:] - 1]
    more = np.where((lengths == 0) | (last == 2), CRC_BYTES, CRC_BYTES + 1)
    too_long = batch.sizes + more > file_bytes - BLANK_BYTES
    more[too_long | (lengths + more > MAX_PROPERTIES_BYTES)] = 0
    kinds = pa.array(np.maximum(more - CRC_BYTES + 1, 0))
    endings = pa.array(_ENDINGS, pa.binary()).take(kinds)
    joined = pc.binary_join_element_wise(_records(batch), endings, pa.scalar(b"", pa.binary()))
    roomy = replace(
        batch, data=joined.buffers()[2], bounds=run_offsets(joined).astype(np.int64), crc_room=True
    )
    starts = roomy.bounds[:-1]
    roomy.headers()["size"][starts] = roomy.sizes
    data = roomy.writable()
    shorts = np.ndarray((len(data) - 1,), ">i2", data, strides=(1,))
    shorts[run.properties_start - 2 - run.starts + starts] = lengths + more
    return roomy


def _records(batch: EncodedBatch) -> pa.BinaryArray:
    offsets = pa.py_buffer(batch.bounds.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(batch), [None, offsets, batch.data])
