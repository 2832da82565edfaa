"""RocketMQ 5's checksum over a whole record, which is the last of its properties.

    __CRC32# \\x01  10 digits  \\x02      the last 20 bytes of the record

The digits are a decimal number, last digit first: the CRC-32, without the top bit, of all bytes
before the last 20. bodyCRC covers only the body; this checksum also covers header, topic and
properties. Source: `CommitLog.checkMessageAndReturnSize` and `MessageDecoder.createCrc32` of 5.x,
where brokers enable it with `enabledAppendPropCRC`.
"""

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Bools, Ints, begin_with, crc32_of_runs, gather
from pyrocket.formats.checksum import crc32
from pyrocket.formats.properties import CRC32, MAX_PROPERTIES_BYTES, NAME_END, VALUE_END
from pyrocket.formats.record import BLANK_BYTES, CRC_MASK, STORE_HOST
from pyrocket.formats.record_fields import RecordFields

CRC_BYTES = 20

_NAME = f"{CRC32}\x01".encode()
_DIGITS = CRC_BYTES - len(_NAME) - 1
_BASE = 10
_POWERS = _BASE ** np.arange(_DIGITS)
_SHAPE = re.compile(rb".{8}\x01[0-9]{10}\x02", re.DOTALL)
_STALE = rf"(^|\x02)(?:{CRC32}\x01[0-9]*(?:\x02|$))+"
OUR_HOST = STORE_HOST[0] + STORE_HOST[1].to_bytes(4, "big")
"""The store host of our records, as 8 bytes."""

_Bytes = npt.NDArray[np.uint8]


def crc_tails(crcs: Ints) -> _Bytes:
    """Return the checksums as properties: (n, 20) bytes."""
    tails = np.empty((len(crcs), CRC_BYTES), np.uint8)
    tails[:, : len(_NAME)] = np.frombuffer(_NAME, np.uint8)
    tails[:, len(_NAME) : -1] = crcs[:, None] // _POWERS % _BASE + ord("0")
    tails[:, -1] = 2
    return tails


def write_crcs(data: _Bytes, bounds: Ints) -> None:
    """Write the checksums of the records that have room for one.

    Apart from the checksum, the records must be complete. `bounds` (n + 1) are their positions in
    `data`.
    """
    every = np.ndarray((len(data) - CRC_BYTES + 1,), f"V{CRC_BYTES}", data, strides=(1,))
    tails = bounds[1:] - CRC_BYTES
    roomy = begin_with(every[tails], _NAME)
    starts, tails = bounds[:-1][roomy], tails[roomy]
    every[tails] = crc_tails(_crcs(pa.py_buffer(data), starts, tails)).view(every.dtype)[:, 0]


def check_crcs(run: RecordFields) -> None:
    """Check the checksums of bodies, and those of whole records if present.

    The structure must have been checked before. In the ranges of `run.sealed`, each record with
    room for a checksum must have a correct one. In other ranges, a checksum is only checked if the
    store host shows that pyrocket wrote the record: a broker that does not write checksums may copy
    a message to another queue together with the checksum of the original. Raises StoreDamagedError.
    """
    start = run.body_start
    bodies = _crcs(run.buffer, start, start + run.body_length)
    run.demand(bodies == run.field("crc"), "checksum mismatch of its body")
    run.demand(_whole_hold(run) & _sealed_hold(run), "checksum mismatch of the whole record")


def _sealed_hold(run: RecordFields) -> Bools:
    """Return a mask: False for records that must have a correct checksum and do not."""
    sealed = run.sealed()
    holds = np.ones(len(run), bool)
    if not sealed.ranges:
        return holds
    rows = np.flatnonzero(sealed.cover(run.field("physical_offset")))
    lengths = run.properties_length[rows]
    rows = rows[has_room(run.sizes[rows], lengths, sealed.file_bytes)]
    starts, tails = run.starts[rows], run.starts[rows] + run.sizes[rows] - CRC_BYTES
    checksums = gather(run.data, tails, f"V{CRC_BYTES}").view(np.uint8).reshape(-1, CRC_BYTES)
    right = (checksums == crc_tails(_crcs(run.buffer, starts, tails))).all(1)
    holds[rows] = right & _are_apart(run, rows)
    return holds


def _are_apart(run: RecordFields, rows: Ints) -> Bools:
    """Return a mask: whether the last 20 bytes of the properties are a separate property."""
    before = run.data[run.starts[rows] + run.sizes[rows] - CRC_BYTES - 1]
    return (before == VALUE_END) | (run.properties_length[rows] == CRC_BYTES)


def has_room(sizes: Ints, properties_lengths: Ints, file_bytes: int) -> Bools:
    """Return a mask: whether records have room for a checksum, used or not.

    The limits are those of `with_crc_room`: the size of log files and of properties.
    """
    more = CRC_BYTES + 1
    return (sizes + more <= file_bytes - BLANK_BYTES) & (
        properties_lengths + more <= MAX_PROPERTIES_BYTES
    )


def _whole_hold(run: RecordFields) -> Bools:
    """Return a mask: False for records of pyrocket that do not match their checksum."""
    ends = run.starts + run.sizes
    tails = gather(run.data, ends - CRC_BYTES, f"V{CRC_BYTES}")
    checksums = tails.view(np.uint8).reshape(-1, CRC_BYTES)
    named = begin_with(tails, _NAME[:-1])
    checked = named | _are_shaped(checksums)
    holds = np.ones(len(run), bool)
    if not checked.any():
        return holds
    named &= run.has_store_host(OUR_HOST)
    rows = np.flatnonzero(checked & run.has_store_host(OUR_HOST))
    right = crc_tails(_crcs(run.buffer, run.starts[rows], ends[rows] - CRC_BYTES))
    same = checksums[rows] == right
    holds[rows] = np.where(named[rows], same.all(1), ~same[:, len(_NAME) :].all(1))
    for row in np.flatnonzero(named & ~_are_apart(run, np.arange(len(run)))).tolist():
        record = run.data[run.starts[row] : ends[row]].tobytes()
        holds[row] = crc_holds(record, int(run.properties_length[row]))
    return holds


def _are_shaped(tails: _Bytes) -> Bools:
    """Return a mask: whether the bytes after each name have the format of a checksum."""
    shaped = (tails[:, len(_NAME) - 1] == NAME_END) & (tails[:, -1] == VALUE_END)
    if shaped.any():
        shaped &= (tails[:, len(_NAME) : -1] - np.uint8(ord("0")) < _BASE).all(1)
    return shaped


def crc_is_right(record: bytes | memoryview, properties_length: int) -> bool:
    """Whether a record ends with a correct checksum."""
    content = record[:-CRC_BYTES]
    apart = properties_length == CRC_BYTES or content[-1] == VALUE_END
    return apart and bytes(record[-CRC_BYTES:]) == _property(content)


def crc_holds(record: bytes | memoryview, properties_length: int) -> bool:
    """Whether a record matches its checksum, or has none.

    A checksum is recognized by its name after a separator. If the name or the separator is corrupt,
    it is recognized by its digits, which are hardly ever correct by chance.
    """
    tail = bytes(record[-CRC_BYTES:])
    if not tail.startswith(_NAME[:-1]) and not _SHAPE.fullmatch(tail):
        return True
    content = record[:-CRC_BYTES]
    apart = properties_length == CRC_BYTES or content[-1] == VALUE_END
    if tail.startswith(_NAME[:-1]):
        if apart:
            return tail == _property(content)
        mended = bytes(content[:-1]) + b"\x02"
        return tail[len(_NAME) :] != _property(mended)[len(_NAME) :]
    return tail[len(_NAME) :] != _property(content)[len(_NAME) :]


def _property(content: bytes | memoryview) -> bytes:
    digits = f"{crc32(content) & CRC_MASK:010d}"[::-1]
    return _NAME + digits.encode() + b"\x02"


def _crcs(data: pa.Buffer, starts: Ints, ends: Ints) -> Ints:
    return crc32_of_runs(data, starts, ends) & CRC_MASK


def without_crc(properties: pa.BinaryArray) -> pa.BinaryArray:
    """Return properties blocks without checksums, which are valid for one record only."""
    if not pc.any(pc.match_substring(properties, _NAME)).as_py():
        return properties
    return pc.replace_substring_regex(properties, _STALE.encode(), rb"\1")


def crc_lengths(properties: pa.BinaryArray) -> Ints:
    """Return the length of the checksum in each block, 0 without one."""
    lengths = pc.binary_length(properties).to_numpy()
    shorter = without_crc(properties)
    return lengths - pc.binary_length(shorter).to_numpy()
