"""Look-ups of messages by key or id: the request, and the locations of the messages."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyrocket.errors import InvalidInputError

_EVER = 2**63 - 1
_Array = npt.NDArray[np.int64]
_Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class MessageLocations:
    """Messages of one queue: their queue offsets, log offsets and sizes in the log.

    Each field contains int64 values in native byte order; offsets are ascending. Fields are bytes,
    so that a pickled task is small. Raises InvalidInputError (LOCATIONS_INVALID) if the fields have
    different lengths.
    """

    topic: str
    queue_id: int
    offsets: bytes
    log_offsets: bytes
    sizes: bytes

    def __post_init__(self) -> None:
        lengths = {len(self.offsets), len(self.log_offsets), len(self.sizes)}
        if len(lengths) > 1 or lengths.pop() % 8:
            raise InvalidInputError(
                "the queue offsets, log offsets and sizes of the locations are not arrays of equal"
                " length.",
                remedy="Pass locations that a look-up returned.",
                code="LOCATIONS_INVALID",
            )

    @classmethod
    def of(
        cls, topic: str, queue_id: int, offsets: _Ints, log_offsets: _Ints, sizes: _Ints
    ) -> "MessageLocations":
        """Return the locations given by sorted arrays."""
        arrays = (array.astype(np.int64).tobytes() for array in (offsets, log_offsets, sizes))
        return cls(topic, queue_id, *arrays)

    def __len__(self) -> int:
        return len(self.offsets) // 8

    @property
    def queue_offsets(self) -> _Array:
        """The queue offsets as an array."""
        return np.frombuffer(self.offsets, np.int64)

    @property
    def log_positions(self) -> _Array:
        """The log offsets as an array."""
        return np.frombuffer(self.log_offsets, np.int64)

    @property
    def stored_bytes(self) -> int:
        """The total size of the messages in the log."""
        return int(np.frombuffer(self.sizes, np.int64).sum())

    def within(self, start: int, end: int) -> "MessageLocations":
        """Return the locations with queue offsets in [start, end)."""
        first, last = np.searchsorted(self.queue_offsets, [start, end]).tolist()
        return self[slice(first, max(first, last))]

    def __getitem__(self, rows: slice) -> "MessageLocations":
        part = slice(8 * rows.start, 8 * rows.stop)
        fields = (self.offsets[part], self.log_offsets[part], self.sizes[part])
        return MessageLocations(self.topic, self.queue_id, *fields)


@dataclass(frozen=True, kw_only=True)
class LookupRequest:
    """A request for all messages of the topics that have one of the keys or ids.

    A key is one of the space-separated KEYS or a unique id. An id is a unique id or an offset id,
    which contains the message's log offset. Only messages stored in [begin_ms, end_ms] match.
    """

    topics: Sequence[str]
    keys: Collection[str] = ()
    ids: Collection[str] = ()
    begin_ms: int = 0
    end_ms: int = _EVER


@dataclass(frozen=True)
class LookupResult:
    """The locations of the messages found, by topic and queue, and the cost of the lookup.

    Attributes:
        locations: At most one item for each queue.
        index_files: The number of key index files that were searched.
        walked_bytes: The number of bytes of the log after the index that were searched.
        candidates: The number of messages that were compared with the request.
    """

    locations: tuple[MessageLocations, ...]
    index_files: int
    walked_bytes: int
    candidates: int

    def __len__(self) -> int:
        return sum(map(len, self.locations))
