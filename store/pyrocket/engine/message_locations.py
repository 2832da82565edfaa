"""Where single messages lie, and reading just these."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrocket.arguments import check_texts, check_type
from pyrocket.errors import OffsetOutOfRangeError, PyrocketError, SchemaError, StoreDamagedError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record_columns import SCAN_COLUMNS, QueueRun, build_columns
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.queues.scanner import SLICE_ROWS
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


def check_columns(columns: Sequence[str], known: Iterable[str]) -> None:
    """Raise SchemaError (COLUMN_UNKNOWN) unless there is a column, and all are known."""
    check_texts(columns=columns)
    known = list(known)
    unknown = [name for name in columns if name not in known]
    if unknown or not columns:
        raise SchemaError(
            f"these messages have no column {unknown[0]!r}." if unknown else "name a column.",
            remedy=f"They have {', '.join(known)}.",
            code="COLUMN_UNKNOWN",
        )


def scan_places(
    log: CommitLog,
    places: MessageLocations,
    broker_name: str,
    columns: Sequence[str],
    *,
    verify_crc: bool,
    where: MessageFilter,
    tally: ScanTally,
) -> Iterator[pa.RecordBatch]:
    """Return batches of the messages that `where` wants, in order; columns are checked at once.

    Raises OffsetOutOfRangeError where they were cleaned away, StoreDamagedError, SchemaError.
    """
    check_type(MessageLocations, "Use what `Store.locate` returned.", places=places)
    check_columns(columns, SCAN_COLUMNS)
    return _scan(log, places, broker_name, columns, verify_crc, where, tally)


def _scan(
    log: CommitLog,
    places: MessageLocations,
    broker_name: str,
    columns: Sequence[str],
    verify_crc: bool,
    where: MessageFilter,
    tally: ScanTally,
) -> Iterator[pa.RecordBatch]:
    for fields, first in _records(log, places):
        count = len(fields)
        if not where.wants_all:
            wanted = where.matching(PropertyColumns(fields.properties()), len(fields))
            fields = fields.part(wanted)
        run = QueueRun(places.topic, broker_name, places.queue_id, first)
        while len(fields):
            batch = build_columns(fields, run, columns, verify_crc=verify_crc)
            yield batch
            # Where bodies inflate to a lot, the rows come in several batches.
            tally.messages += batch.num_rows
            fields = fields.part(slice(batch.num_rows, None))
        tally.entries, tally.records = tally.entries + count, tally.records + count


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
