"""Room for a checksum over the whole record at the end of records that are to be appended."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.config import MAX_PROPERTIES_BYTES
from pyrocket.formats.arrow_buffers import run_offsets
from pyrocket.formats.record import BLANK_BYTES
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_crc import CRC_BYTES, crc_tails
from pyrocket.formats.record_fields import RecordFields

_ROOM = crc_tails(np.zeros(1, np.int64)).tobytes()
_ENDINGS = pa.array([b"", _ROOM, b"\x02" + _ROOM], pa.binary())
"""Where it does not fit; behind properties that end with \\x02, or are none; behind others."""


def with_crc_room(batch: EncodedBatch, file_bytes: int) -> EncodedBatch:
    """Return the records with room, but for those that become too long by it.

    They are for log files of `file_bytes`.
    """
    run = RecordFields(batch.data, 0, batch.bounds[:-1], batch.sizes)
    lengths, last = run.properties_length, run.data[batch.bounds[1:] - 1]
    more = np.where((lengths == 0) | (last == 2), CRC_BYTES, CRC_BYTES + 1)
    too_long = batch.sizes + more > file_bytes - BLANK_BYTES
    more[too_long | (lengths + more > MAX_PROPERTIES_BYTES)] = 0
    endings = _ENDINGS.take(pa.array(np.maximum(more - CRC_BYTES + 1, 0)))
    joined = pc.binary_join_element_wise(_records(batch), endings, pa.scalar(b"", pa.binary()))
    roomy = replace(
        batch,
        data=joined.buffers()[2],
        bounds=run_offsets(joined).astype(np.int64),
        crc_room=True,
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
