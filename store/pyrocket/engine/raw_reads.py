"""`Store.raw`: undecoded records and their locations, for programs that forward messages."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pyrocket.base.arguments import check_numbers, check_type
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.reader import Reader
from pyrocket.errors import (
    OffsetOutOfRangeError,
    PyrocketError,
    StoreDamagedError,
)
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.record_fetch import records_at
from pyrocket.index.queues.scanner import SLICE_ROWS, matching, slice_of_runs
from pyrocket.log.commit_log import CommitLog
from pyrocket.values.lookup import MessageLocations
from pyrocket.values.message import ByteSpan, MessageQueue


@translating_methods
class RawReads:
    """Reads records of one store without decoding them.

    `decode_slices` turns the slices into columns. Never locks, never writes. Safe to share between
    threads.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def slices(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages [start, end) that match `where` as raw records.

        A slice has a few MiB and is valid until the next one is requested. A `tally` counts the
        messages examined. Raises OffsetOutOfRangeError, StoreDamagedError.
        """
        known = self._reader.topics.get(topic)
        check_numbers(queue_id=queue_id, start=start, end=end)
        return self._reader.slices(known, queue_id, start, end, where=where, tally=tally)

    def slice_of_ranges(
        self,
        topic: str,
        ranges: Sequence[tuple[int, int, int]],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> RecordSlice | None:
        """Return the messages of a few small ranges (queue, start, end) as one slice.

        Takes about as long as reading one range. Returns None if the messages have more than a few
        MiB or a range cannot be read; in this case, read each range separately.
        """
        runs = self._reader.runs(self._reader.topics.get(topic).name, ranges)
        if not runs:
            return None
        where, tally = where or MessageFilter(), tally or ScanTally()
        return slice_of_runs(self._reader.log, runs, self._broker, where, tally)

    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages at locations that `Lookup.locate` returned, as `slices` does."""
        check_type(
            MessageLocations, "Use the result of `Store.lookup.locate`.", locations=locations
        )
        where, tally = where or MessageFilter(), tally or ScanTally()
        return slices_at(self._reader.log, locations, self._broker, where, tally)

    def log_span(self, topic: str, queue_id: int, start: int, end: int) -> ByteSpan:
        """Return the log range that contains [start, end), and the messages' approximate size.

        The size is exact for up to 256 messages. All values are 0 if none of the messages exists.
        """
        return self._reader.log_span(topic, queue_id, start, end)

    def cut_by_bytes(
        self, topic: str, queue_id: int, start: int, end: int, marks: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return, for each size limit in `marks`, the highest offset within the limit.

        Each result is (offset in [start, end], bytes of the messages from `start` to it). `marks`
        must be ascending. Reads 20 bytes per message up to the last mark.
        """
        return self._reader.cut_by_bytes(topic, queue_id, start, end, marks)

    @property
    def _broker(self) -> str:
        return self._reader.identity.config.broker_name


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
