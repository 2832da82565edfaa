"""Locations of single messages of a queue, and slices that contain exactly these messages."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pyrocket.errors import (
    OffsetOutOfRangeError,
    PyrocketError,
    StoreDamagedError,
)
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.record_fetch import records_at
from pyrocket.index.queues.scanner import SLICE_ROWS, matching
from pyrocket.log.commit_log import CommitLog
from pyrocket.values.lookup import MessageLocations
from pyrocket.values.message import MessageQueue

_Array = npt.NDArray[np.int64]


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
