"""Ranges of the log in which every record has a checksum of the whole record: see `record_crc`."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints

OPEN_END = 2**63 - 1
"""The end of a range to which records are still appended."""


@dataclass(frozen=True)
class SealedRanges:
    """Half-open ranges of log offsets, ascending; `file_bytes` is the size of the log files.

    A record in one of the ranges is corrupt if it has room for a checksum, but no checksum.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    file_bytes: int = 0

    def cover(self, offsets: Ints) -> npt.NDArray[np.bool_]:
        """Return a mask: whether each log offset is in a range."""
        covered = np.zeros(len(offsets), bool)
        for start, end in self.ranges:
            covered |= (offsets >= start) & (offsets < end)
        return covered

    @property
    def is_open(self) -> bool:
        """Whether the next append writes checksums."""
        return bool(self.ranges) and self.ranges[-1][1] == OPEN_END

    def at(self, log_end: int, *, sealing: bool) -> "SealedRanges":
        """Return the ranges for a log that ends at `log_end`; `sealing` opens a range there."""
        kept = [(start, min(end, log_end)) for start, end in self.ranges if start < log_end]
        if sealing and kept and kept[-1][1] == log_end:
            kept[-1] = (kept[-1][0], OPEN_END)
        elif sealing:
            kept.append((log_end, OPEN_END))
        return SealedRanges(tuple(kept), self.file_bytes)


NOT_SEALED = SealedRanges()

Sealed = Callable[[], SealedRanges]
"""Returns the current ranges."""


def not_sealed() -> SealedRanges:
    """Return no ranges: no record is required to have a checksum."""
    return NOT_SEALED
