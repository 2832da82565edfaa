"""Hashes of text: Java's String.hashCode and 64-bit FNV-1a, for one string or a column.

RocketMQ uses String.hashCode for tags and index keys, and to choose a queue: h = 31·h + unit over
UTF-16 code units, in 32-bit two's complement. Source: `java.lang.String`. FNV-1a is
h = (h xor byte)·prime over the UTF-8 bytes.
"""

import sys
from collections.abc import Sequence
from functools import cache
from operator import mul

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import run_offsets, text_bytes
from pyrocket.formats.properties import TAGS
from pyrocket.formats.property_columns import PropertyColumns

_UTF_16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_CHUNK = 1 << 16
"""Number of code units hashed at a time, unless a string is longer, so tables stay in cache."""

_SHORT = 512


def java_hash(text: str) -> int:
    """Return `text.hashCode()` as a signed 32-bit integer."""
    units: Sequence[int]
    if text.isascii():
        units = text.encode()
    else:
        units = memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H")
    powers = _plain_powers(max(len(units), _SHORT).bit_length())
    value = sum(map(mul, units[::-1], powers)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def queue_for_key(key: str, queues: int) -> int:
    """Return RocketMQ's SelectMessageQueueByHash: abs(hash % queues) with Java's remainder."""
    return abs(java_hash(key)) % queues


def queues_for_keys(keys: pa.StringArray, queues: int) -> npt.NDArray[np.int32]:
    """Return `queue_for_key` of each string; a null is hashed as the empty string."""
    hashes = java_hash_column(keys).astype(np.int64)
    return (np.abs(hashes) % queues).astype(np.int32)


def java_hash_column(
    strings: pa.StringArray, before: int = 0, chunk: int = _CHUNK
) -> npt.NDArray[np.int32]:
    """Return the hash of each string (shape: the array's); a null is hashed as the empty string.

    `before` is the hash of a common prefix of the strings. `chunk` is the number of code units
    hashed at a time.
    """
    if len(strings) == 0:
        return np.zeros(0, np.int32)
    data = text_bytes(strings)
    if not data.size:
        return np.full(len(strings), before, np.int32)
    offsets = run_offsets(strings).astype(np.int64)
    offsets -= offsets[0]
    units, offsets = _to_utf16(data, offsets) if data.max() >= 0x80 else (data, offsets)
    hashes = _hash_runs(units, offsets, before, chunk)
    if strings.null_count:
        # The slot of a null may contain bytes.
        hashes[strings.is_null().to_numpy(zero_copy_only=False)] = before
    return hashes


def _to_utf16(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    """Return the code units of UTF-8 text and the offsets of the runs, without a loop."""
    units = np.frombuffer(data.tobytes().decode("utf-8").encode("utf-16-le"), "<u2")
    # A character has one unit at its first byte, and a second unit if it has four bytes.
    units_at = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0)
    before = np.concatenate(([0], np.cumsum(units_at)))
    return units, before[offsets]


def _hash_runs(
    units: npt.NDArray[np.generic], offsets: npt.NDArray[np.int64], before: int, chunk: int
) -> npt.NDArray[np.int32]:
    """Return the hash of each run units[offsets[i]:offsets[i+1]], continuing the hash `before`."""
    hashes = np.empty(len(offsets) - 1, np.uint32)
    first = 0
    while first < len(hashes):
        after = int(np.searchsorted(offsets, offsets[first] + chunk, side="right"))
        last = max(first + 1, after - 1)
        part = offsets[first : last + 1]
        hashes[first:last] = _hash_chunk(units[part[0] : part[-1]], part - part[0], before)
        first = last
    return hashes.view(np.int32)


def _hash_chunk(
    units: npt.NDArray[np.generic], offsets: npt.NDArray[np.int64], before: int
) -> npt.NDArray[np.uint32]:
    """Return the hashes of consecutive runs from 0 on, modulo 2³².

    31 is odd and therefore has an inverse w. unit·31^(end-1-i) is 31^(end-1) times unit·w^i, and
    the sum of unit·w^i over a run is a difference of one running sum over all runs.
    """
    bits = max(_CHUNK, len(units)).bit_length()
    powers, inverse_powers = _powers(31, bits), _powers(pow(31, -1, 1 << 32), bits)
    running = np.zeros(len(units) + 1, np.uint32)
    terms = np.multiply(units, inverse_powers[: len(units)], dtype=np.uint32)
    np.cumsum(terms, dtype=np.uint32, out=running[1:])
    ends = offsets[1:]
    sums = running[ends] - running[offsets[:-1]]
    # The sum of an empty run is 0, so the factor does not matter.
    hashes: npt.NDArray[np.uint32] = sums * powers[ends - 1]
    if before:
        hashes += powers[np.diff(offsets)] * np.uint32(before & 0xFFFFFFFF)
    return hashes


@cache
def _powers(base: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the first 2^bits powers of a number modulo 2³²."""
    powers = np.full(1 << bits, base, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


@cache
def _plain_powers(bits: int) -> list[int]:
    return _powers(31, bits).tolist()


def tags_hashes(properties: PropertyColumns) -> npt.NDArray[np.int64]:
    """Return the hash of each record's tags."""
    return hashes_of_tags(properties.column(TAGS))


def hashes_of_tags(tags: pa.StringArray) -> npt.NDArray[np.int64]:
    """Return the hash of each text, 0 for a null; each distinct text is hashed once."""
    distinct = tags.dictionary_encode()
    hashes = np.append(java_hash_column(distinct.dictionary), 0).astype(np.int64)
    return hashes[pc.fill_null(distinct.indices, len(hashes) - 1).to_numpy()]


_START = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)

Hashes = npt.NDArray[np.uint64]


def fnv1a_column(texts: pa.StringArray) -> Hashes:
    """Return the hash of each text (shape: the array's); of a null, that of its slot's bytes."""
    hashes = np.full(len(texts), _START)
    if not len(texts):
        return hashes
    data, offsets = text_bytes(texts), run_offsets(texts).astype(np.int64)
    lengths = np.diff(offsets)
    # Longest first, so that the texts that have a byte at a given position are the leading ones.
    order = np.argsort(-lengths, kind="stable")
    starts, falling = (offsets[:-1] - offsets[0])[order], -lengths[order]
    for at in range(int(lengths.max())):
        count = int(np.searchsorted(falling, -at, side="left"))
        hashes[:count] = (hashes[:count] ^ data[starts[:count] + at]) * _PRIME
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted
