"""Builds blocks of records as clients send them to a broker."""

import numpy as np
from pyrocket.formats.record import follow
from pyrocket.formats.wire_block import encode_records


def block_of(data, sizes=None):
    """Return a block of records; `sizes` defaults to the sizes in the records."""
    if sizes is None:
        starts, end = follow(memoryview(data), 0)
        bounds = [*starts, end] if starts else [0]
        sizes = np.diff([*bounds, len(data)] if bounds[-1] < len(data) else bounds)
    return encode_records(memoryview(data), np.array(sizes, np.int64))
