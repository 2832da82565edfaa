"""Where single messages lie, and reading just these."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.errors import OffsetOutOfRangeError, PyrocketError, StoreDamagedError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_columns import QueueRun
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.scanner import SLICE_ROWS, records_wanted
from pyrocket.index.queues.scattered_reads import records_at
from pyrocket.log.commit_log import CommitLog

_Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MessageLocations:
    """Messages of one queue: their queue offsets, log offsets and sizes in the log.

    Each is int64 in native order, as bytes, ascending; so many are small to send to a task.
    """

    topic: str
    queue_id: int
    offsets: bytes
    log_offsets: bytes
    sizes: bytes

    @classmethod
    def of(
        cls, topic: str, queue_id: int, offsets: Ints, log_offsets: Ints, sizes: Ints
    ) -> "MessageLocations":
        """Return the places that arrays name; these are sorted already."""
        arrays = (array.astype(np.int64).tobytes() for array in (offsets, log_offsets, sizes))
        return cls(topic, queue_id, *arrays)

    def __len__(self) -> int:
        return len(self.offsets) // 8

    @property
    def queue_offsets(self) -> _Array:
        """The queue offsets as an array."""
        return np.frombuffer(self.offsets, np.int64)

    @property
    def positions(self) -> _Array:
        """The log offsets as an array."""
        return np.frombuffer(self.log_offsets, np.int64)

    @property
    def stored_bytes(self) -> int:
        """How much of the log they take."""
        return int(np.frombuffer(self.sizes, np.int64).sum())

    def within(self, start: int, end: int) -> "MessageLocations":
        """Return those with queue offsets in [start, end)."""
        first, last = np.searchsorted(self.queue_offsets, [start, end]).tolist()
        return self[slice(first, max(first, last))]

    def __getitem__(self, rows: slice) -> "MessageLocations":
        part = slice(8 * rows.start, 8 * rows.stop)
        fields = (self.offsets[part], self.log_offsets[part], self.sizes[part])
        return MessageLocations(self.topic, self.queue_id, *fields)


def slices_at(
    log: CommitLog,
    places: MessageLocations,
    broker_name: str,
    where: MessageFilter,
    tally: ScanTally,
) -> Iterator[RecordSlice]:
    """Yield the messages that `where` wants, in order.

    Raises OffsetOutOfRangeError where they were cleaned away, StoreDamagedError.
    """
    for fields, first in _records(log, places):
        wanted = records_wanted(fields, where)
        tally.messages += len(wanted)
        yield RecordSlice(QueueRun(places.topic, broker_name, places.queue_id, first), wanted)
        tally.entries, tally.records = tally.entries + len(fields), tally.records + len(fields)


def _records(log: CommitLog, places: MessageLocations) -> Iterator[tuple[RecordFields, int]]:
    """Yield the records, checked, and the queue offset of the first of each part."""
    wanted, offsets = places.positions, places.queue_offsets
    seen = 0
    for rows, found in records_at(log, wanted, np.frombuffer(places.sizes, np.int64)):
        present = rows == np.arange(seen, seen + len(rows))
        if not present.all():
            raise _missing(log, places, seen + int(np.argmin(present)))
        seen += len(rows)
        found.check_places(places.topic, places.queue_id, offsets[rows])
        for start in range(0, len(rows), SLICE_ROWS):
            yield found.part(slice(start, start + SLICE_ROWS)), int(offsets[rows[start]])
    if seen < len(wanted):
        raise _missing(log, places, seen)


def _missing(log: CommitLog, places: MessageLocations, row: int) -> PyrocketError:
    """Return the error of a record that is not where it was."""
    at, offset = int(places.positions[row]), int(places.queue_offsets[row])
    where = f"offset {offset} of queue {places.queue_id} of {places.topic!r} (log offset {at})"
    if at < log.first_offset():
        return OffsetOutOfRangeError(
            f"the log file with {where} was cleaned away.", remedy="Look the messages up again."
        )
    return StoreDamagedError(
        f"corrupt record at {where}: there is no whole one.",
        remedy="Restore the log file from a backup.",
    )
