"""Locations of single messages of a queue, and slices that contain exactly these messages."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.errors import (
    InvalidInputError,
    OffsetOutOfRangeError,
    PyrocketError,
    StoreDamagedError,
)
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.record_fetch import records_at
from pyrocket.index.queues.scanner import SLICE_ROWS, matching
from pyrocket.log.commit_log import CommitLog
from pyrocket.values.message import MessageQueue

_Array = npt.NDArray[np.int64]


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
        cls, topic: str, queue_id: int, offsets: Ints, log_offsets: Ints, sizes: Ints
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


def slices_at(
    log: CommitLog,
    locations: MessageLocations,
    broker_name: str,
    where: MessageFilter,
    tally: ScanTally,
) -> Iterator[RecordSlice]:
    """Yield the messages at the locations that match `where`, in order.

    Raises OffsetOutOfRangeError if their log file was deleted, StoreDamagedError.
    """
    queue = MessageQueue(locations.topic, broker_name, locations.queue_id)
    wanted, offsets = locations.log_positions, locations.queue_offsets
    seen = 0
    for rows, records in records_at(log, wanted, np.frombuffer(locations.sizes, np.int64)):
        present = rows == np.arange(seen, seen + len(rows))
        if not present.all():
            raise _missing(log, locations, seen + int(np.argmin(present)))
        seen += len(rows)
        records.check_places(locations.topic, locations.queue_id, offsets[rows])
        for start in range(0, len(rows), SLICE_ROWS):
            all_of_it = RecordSlice(queue, records.part(slice(start, start + SLICE_ROWS)))
            part, count = matching(all_of_it, where), len(all_of_it)
            tally.messages += len(part)
            if len(part):
                yield part
            tally.entries, tally.records = tally.entries + count, tally.records + count
    if seen < len(wanted):
        raise _missing(log, locations, seen)


def _missing(log: CommitLog, locations: MessageLocations, row: int) -> PyrocketError:
    """Return the error about a message that is not at its location."""
    at, offset = int(locations.log_positions[row]), int(locations.queue_offsets[row])
    where = (
        f"offset {offset} of queue {locations.queue_id} of {locations.topic!r} (log offset {at})"
    )
    if at < log.first_offset():
        return OffsetOutOfRangeError(
            f"the log file with {where} has expired.", remedy="Look the messages up again."
        )
    return StoreDamagedError(
        f"corrupt record at {where}: there is no complete record.",
        remedy="Restore the log file from a backup.",
    )
