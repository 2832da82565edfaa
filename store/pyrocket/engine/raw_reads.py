"""`Store.raw`: undecoded records and their locations, for programs that forward messages."""

from collections.abc import Iterator, Sequence

from pyrocket.arguments import check_numbers, check_type
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.reader import Reader
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.message_locations import MessageLocations, slices_at
from pyrocket.index.queues.scan_many import slice_of_runs
from pyrocket.message import ByteSpan


@translating_methods
class RawReads:
    """Reads one store without decoding. `decode_slices` makes columns of the slices.

    Never locks, never writes. Safe to share between threads.
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

        A slice has a few MiB and is valid until the next one is taken. A `tally` counts what was
        examined. Raises OffsetOutOfRangeError, StoreDamagedError.
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

        Costs about as much as one of them. None if they have more than a few MiB, or if one cannot
        be read; read each range alone then.
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
            MessageLocations, "Use what `Store.lookup.locate` returned.", locations=locations
        )
        where, tally = where or MessageFilter(), tally or ScanTally()
        return slices_at(self._reader.log, locations, self._broker, where, tally)

    def log_span(self, topic: str, queue_id: int, start: int, end: int) -> ByteSpan:
        """Return the range of the log that holds [start, end), and about how many bytes it has.

        The count is exact up to 256 messages. Zeros if none of them exists.
        """
        return self._reader.log_span(topic, queue_id, start, end)

    def cut_by_bytes(
        self, topic: str, queue_id: int, start: int, end: int, marks: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return for each mark, ascending, the last offset up to which messages have no more bytes.

        The offsets lie in [start, end]; with each comes the number of bytes from `start` on. Reads
        20 bytes a message, up to the last mark.
        """
        return self._reader.cut_by_bytes(topic, queue_id, start, end, marks)

    @property
    def _broker(self) -> str:
        return self._reader.identity.config.broker_name
