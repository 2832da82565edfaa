"""FNV-1a, 64 bits, of many texts at once: h = (h xor byte) · prime over their UTF-8 bytes."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrocket.formats.arrow_buffers import run_offsets, text_bytes

_START = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)

Hashes = npt.NDArray[np.uint64]


def fnv1a_column(texts: pa.StringArray) -> Hashes:
    """Return the hash of each text (shape: the array's); a null is hashed as its hidden bytes."""
    hashes = np.full(len(texts), _START)
    if not len(texts):
        return hashes
    data, offsets = text_bytes(texts), run_offsets(texts).astype(np.int64)
    lengths = np.diff(offsets)
    # The longest first: those that still have a byte at some place are always the leading ones.
    order = np.argsort(-lengths, kind="stable")
    starts, falling = (offsets[:-1] - offsets[0])[order], -lengths[order]
    for at in range(int(lengths.max())):
        some = int(np.searchsorted(falling, -at, side="left"))
        hashes[:some] = (hashes[:some] ^ data[starts[:some] + at]) * _PRIME
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted
