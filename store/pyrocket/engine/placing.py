"""Assigns log and queue offsets to the records of an append, batch after batch."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_batch import Chunk
from pyrocket.log.commit_log import CommitLog, Placement


@dataclass(frozen=True)
class Placed:
    """A chunk with the log offsets and queue offsets of its records."""

    chunk: Chunk
    placement: Placement
    queue_offsets: Ints


class OffsetAllocator:
    """Places chunks one after the other from a log offset on. Requires the write lock."""

    def __init__(self, log: CommitLog, next_offset: Callable[[str, int], int], start: int) -> None:
        self._log, self._next_offset = log, next_offset
        self._tails: dict[tuple[str, int], int] = {}
        self.end = start

    def place(self, chunk: Chunk) -> Placed:
        """Assign offsets to the records of a chunk. Raises MessageError (RECORD_TOO_LARGE)."""
        placement = self._log.place(self.end, chunk.sizes)
        queue_ids = chunk.queue_ids
        parts = [
            self._take(chunk.topic, int(queue_ids[first]), last - first)
            for first, last in runs_of(queue_ids)
        ]
        self.end = placement.end
        return Placed(chunk, placement, parts[0] if len(parts) == 1 else np.concatenate(parts))

    def _take(self, topic: str, queue_id: int, count: int) -> Ints:
        """Return the next `count` offsets of a queue."""
        key = topic, queue_id
        tail = self._tails[key] if key in self._tails else self._next_offset(topic, queue_id)
        self._tails[key] = tail + count
        return np.arange(tail, tail + count)


def runs_of(values: npt.NDArray[np.int32]) -> list[tuple[int, int]]:
    """Return [first, last) of each run of equal values."""
    if len(values) == 1:
        return [(0, 1)]
    cuts = np.flatnonzero(np.diff(values)) + 1
    bounds = [0, *cuts.tolist(), len(values)] if len(values) else []
    return list(itertools.pairwise(bounds))
