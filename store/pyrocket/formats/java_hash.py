"""Java's String.hashCode: tags, index keys and the choice of a queue all rest on it.

h = 31·h + unit over UTF-16 code units, in 32-bit two's complement. Source: java.lang.String.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrocket.formats.runs import run_offsets, text_bytes


def java_hash(text: str) -> int:
    """Return `text.hashCode()` as a signed 32-bit integer."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def queue_for_key(key: str, queues: int) -> int:
    """Return RocketMQ's SelectMessageQueueByHash: abs(hash % queues), Java's remainder."""
    return abs(java_hash(key)) % queues


def queues_for_keys(keys: pa.StringArray, queues: int) -> npt.NDArray[np.int32]:
    """Return `queue_for_key` of each string; a null is hashed as the empty string."""
    hashes = java_hash_column(keys).astype(np.int64)
    return (np.abs(hashes) % queues).astype(np.int32)


def java_hash_column(strings: pa.StringArray) -> npt.NDArray[np.int32]:
    """Return the hash of each string (shape: the array's); null and empty are 0."""
    if len(strings) == 0:
        return np.zeros(0, np.int32)
    data = text_bytes(strings)
    if not data.size:
        return np.zeros(len(strings), np.int32)
    offsets = run_offsets(strings).astype(np.int64)
    offsets -= offsets[0]
    units, offsets = _to_utf16(data, offsets) if data.max() >= 0x80 else (data, offsets)
    hashes = _hash_runs(units, offsets)
    if strings.null_count:
        # A null may hide bytes.
        hashes[strings.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


def _to_utf16(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    """Return the code units of UTF-8 text and the runs' offsets in them, without a loop."""
    units = np.frombuffer(data.tobytes().decode("utf-8").encode("utf-16-le"), "<u2")
    # A character has one unit at its first byte and a second one if it takes four bytes.
    units_at = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0)
    before = np.concatenate(([0], np.cumsum(units_at)))
    return units, before[offsets]


def _hash_runs(
    units: npt.NDArray[np.generic], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Return the hash of each run units[offsets[i]:offsets[i+1]].

    The sum of unit·31^(units to its right) modulo 2³², as differences of one running sum.
    """
    lengths = np.diff(offsets)
    powers = _powers(int(lengths.max(initial=0)))
    ends = np.repeat(offsets[1:], lengths)
    exponents = ends - 1 - np.arange(offsets[0], offsets[-1])
    terms = units.astype(np.uint32) * powers[exponents]
    running = np.concatenate((np.zeros(1, np.uint32), np.cumsum(terms, dtype=np.uint32)))
    return (running[offsets[1:]] - running[offsets[:-1]]).view(np.int32)


def _powers(count: int) -> npt.NDArray[np.uint32]:
    """Return 31^0 … 31^(count-1) modulo 2³²."""
    powers = np.full(max(count, 1), 31, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)
