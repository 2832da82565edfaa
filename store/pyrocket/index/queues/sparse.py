"""Records that lie far from each other in the log, brought together in one buffer."""

import numpy as np
import pyarrow as pa

from pyrocket.disk.gathering import gather
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_fields import RecordFields
from pyrocket.log.commit_log import CommitLog

_APART = 32 * 1024
"""From here on a read for each costs less than the pages around all of them."""

_FILLED = 4
"""Of records that fill more than one part in four of their stretch of the log all is mapped."""

_NEAR = 4096
"""So many bytes between two records are read rather than skipped."""


def lie_apart(offsets: Ints, sizes: Ints) -> bool:
    """Whether the records at these log offsets, which ascend, are better read one by one."""
    if not len(offsets):
        return False
    stretch = int(offsets[-1] + sizes[-1] - offsets[0])
    return stretch > _APART * len(offsets) and stretch > _FILLED * int(sizes.sum())


def read_apart(log: CommitLog, offsets: Ints, sizes: Ints) -> RecordFields:
    """Return the records at these log offsets, which ascend, each within one file.

    Nothing is checked yet. Raises FileNotFoundError, StoreDamagedError.
    """
    ends = offsets + sizes
    between = offsets[1:] - ends[:-1] > _NEAR
    between |= np.diff(offsets // log.file_bytes) > 0
    firsts, lasts = np.append(True, between), np.append(between, True)
    starts, lengths = offsets[firsts], ends[lasts] - offsets[firsts]
    data = gather(log.run, list(zip(starts.tolist(), lengths.tolist(), strict=True)))
    if len(data) < lengths.sum():
        raise StoreDamagedError(
            f"a log file from log offset {int(offsets[0])} on is shorter than its entries say.",
            remedy="Restore it from a backup: files of a run never change their length.",
        )
    piece = np.cumsum(firsts) - 1
    before = np.cumsum(lengths) - lengths
    at = offsets + (before - starts)[piece]
    return RecordFields(pa.py_buffer(data), offsets - at, at, sizes, log.sealed)
