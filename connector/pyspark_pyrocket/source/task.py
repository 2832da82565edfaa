"""Executes a task: reads raw slices, decodes them, and returns columns to Spark.

This is the only module of the connector that decodes records, for all transports.

The messages of a task are fixed when it is planned. They may be deleted or corrupt when it runs:
log files are cleaned at any time, and a micro-batch may be replayed long after it was planned. With
`onDataLoss=fail`, the task then fails; otherwise it reads the remaining messages and warns.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyrocket import (
    MessageFilter,
    MessageLocations,
    MessageQueue,
    QueueRange,
    ScanTally,
    decode_slices,
)
from pyrocket.errors import (
    DataLossError,
    OffsetOutOfRangeError,
    PyrocketError,
    QueueNotFoundError,
    RecordDamagedError,
    StoreDamagedError,
    TopicNotFoundError,
)
from pyspark.sql.datasource import InputPartition

from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import Selection
from pyspark_pyrocket.source.bad_records import sender
from pyspark_pyrocket.source.data_loss import HOW_TO_CONTINUE, Losses
from pyspark_pyrocket.source.partitions import (
    Locations,
    Ranges,
    ReadPartition,
    Task,
    small_together,
)
from pyspark_pyrocket.transport.interface import Bounds, BrokerSource
from pyspark_pyrocket.worker import LOG, freeze_imports, log_to_stderr, some_of

EVERY_MESSAGE = MessageFilter()

_NO_END = 2**63 - 1

Batches = Iterator[pa.RecordBatch]
Scan = Callable[[QueueRange, ScanTally], Batches]
"""Yields the messages of a range that match a filter, and counts the records examined."""

ScanLocations = Callable[[MessageLocations, ScanTally], Batches]
"""Yields the single messages of one queue that match a filter, and counts like `Scan`."""


@dataclass(frozen=True)
class Columns:
    """The columns to decode, the filter, and whether to verify the CRC of bodies."""

    names: tuple[str, ...]
    where: MessageFilter = EVERY_MESSAGE
    verify_crc: bool = False

    def of_range(self, source: BrokerSource, each: QueueRange, tally: ScanTally) -> Batches:
        """Yield the messages of a range that match the filter."""
        slices = source.slices([each], where=self.where, tally=tally)
        join = not self.where.wants_all
        return decode_slices(slices, self.names, verify_crc=self.verify_crc, join=join)

    def of_locations(
        self, source: BrokerSource, locations: MessageLocations, tally: ScanTally
    ) -> Batches:
        """Yield the messages at these locations that match the filter."""
        slices = source.slices_at(locations, where=self.where, tally=tally)
        return decode_slices(slices, self.names, verify_crc=self.verify_crc)

    def of_small_ranges(
        self, source: BrokerSource, ranges: Task, tally: ScanTally
    ) -> pa.RecordBatch | None:
        """Return the messages of small ranges of one topic; None if each has to be read alone.

        That is the case if messages are corrupt or deleted, because losses are counted by range.
        """
        counted = ScanTally()
        try:
            joined = source.joined_slice(ranges, where=self.where, tally=counted)
            if joined is None:
                return None
            batch = joined.decode_in_order(self.names, verify_crc=self.verify_crc)
        except (DataLossError, StoreDamagedError, TopicNotFoundError, QueueNotFoundError):
            return None
        if batch is not None:
            tally.add(counted)
        return batch


def read_partition(
    partition: InputPartition, projection: Projection, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, in order; a retry or a replay yields the same rows.

    Only messages that were deleted in between are missing, if `onDataLoss` allows that. Raises
    StoreNotSharedError.
    """
    freeze_imports()
    # Spark creates a partition of its own if the plan has none.
    if not isinstance(partition, ReadPartition):
        return iter(())
    batches = rows_of(partition, projection.scan, options)
    keys_at = Columns(("keysText",)).of_locations
    on_bad = sender(partition.target, options.payload.bad_topic, keys_at)
    return projection.apply_all(batches, on_bad)


def rows_of(
    partition: ReadPartition, names: tuple[str, ...], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield these columns of the rows of one task, before the projection."""
    target, work = partition.target, partition.work
    columns = Columns(names, options.selection.where, options.verify_crc)
    if isinstance(work, Ranges):
        reader = target.open_reader(work.ranges)
        yield from _read_ranges(reader, work.ranges, columns, options.loss, options.selection)
        return
    source = target.open_source()
    if isinstance(work, Locations):
        for located in work.locations:
            scan = partial(columns.of_locations, source)
            yield from read_locations(source, located, options.loss, scan)
    else:
        for part in work.parts:
            yield from source.read_view(
                part, names, topics=work.topics, verify_crc=columns.verify_crc
            )


def _read_ranges(
    source: BrokerSource, ranges: Task, columns: Columns, loss: LossPolicy, selection: Selection
) -> Iterator[pa.RecordBatch]:
    tally, scan = ScanTally(), partial(columns.of_range, source)
    for few in small_together(ranges):
        batch = columns.of_small_ranges(source, few, tally) if len(few) > 1 else None
        if batch is not None:
            yield batch
            continue
        for part in few:
            yield from read_range(source, part, loss, scan, tally)
    if not columns.where.wants_all:
        _log_tally(ranges, selection, tally)


def _log_tally(ranges: Task, selection: Selection, tally: ScanTally) -> None:
    log_to_stderr()
    queues = (f"{part.queue.topic}/{part.queue.queue_id}" for part in ranges)
    LOG.info(
        "%s selected %d of %d messages of %s: %d were skipped by the hash of their tags, %d by"
        " their properties",
        selection.describe(),
        tally.messages,
        tally.entries,
        some_of(dict.fromkeys(queues)),
        tally.entries - tally.records,
        tally.records - tally.messages,
    )


def read_range(
    source: BrokerSource, each: QueueRange, loss: LossPolicy, scan: Scan, tally: ScanTally
) -> Batches:
    """Yield the messages of a range.

    If messages are deleted or single records are corrupt, the policy decides: either the error of
    `scan` is raised, or the messages are skipped, counted as lost, and logged. Other corruption
    always raises. `tally` counts the records that `scan` has examined.
    """
    if loss.fails:
        try:
            yield from scan(each, tally)
        except OffsetOutOfRangeError as error:
            raise _with_remedy(error) from error
        return
    left = [each]
    while left:
        left = (yield from _read_until_loss(source, left[0], Losses(loss), scan, tally)) + left[1:]


def read_locations(
    source: BrokerSource, locations: MessageLocations, loss: LossPolicy, scan: ScanLocations
) -> Batches:
    """Yield single messages of one queue; losses are handled as in `read_range`."""
    left = [locations] if len(locations) else []
    while left:
        now = left.pop(0)
        tally = ScanTally()
        try:
            yield from scan(now, tally)
        except OffsetOutOfRangeError as error:
            if loss.fails:
                raise _with_remedy(error) from error
            ahead = now[slice(tally.entries, len(now))]
            queue, has = _bounds_now(source, ahead)
            rest = ahead.within(has[queue].minimum, _NO_END)
            lost = len(ahead) - len(rest)
            if not lost:
                raise
            log_to_stderr()
            outcome = f"reads the remaining {len(rest)} of the messages found"
            Losses(loss).report(queue, lost, outcome, error)
            left = [rest, *left] if len(rest) else left
        except RecordDamagedError as error:
            ahead = now[slice(tally.entries, len(now))]
            half = len(ahead) // 2
            if loss.fails:
                raise
            if half:
                left = [ahead[slice(0, half)], ahead[slice(half, len(ahead))], *left]
            else:
                queue, _ = _bounds_now(source, ahead)
                _report_damaged(Losses(loss), queue, error)


def _bounds_now(source: BrokerSource, locations: MessageLocations) -> tuple[MessageQueue, Bounds]:
    (broker,) = source.by_broker()
    queue = MessageQueue(locations.topic, broker, locations.queue_id)
    return queue, source.queue_bounds([queue])


def _with_remedy(error: OffsetOutOfRangeError) -> OffsetOutOfRangeError:
    remedy = f"{error.remedy} {HOW_TO_CONTINUE}".lstrip()
    return OffsetOutOfRangeError(error.message, remedy=remedy, code=error.code)


def _read_until_loss(
    source: BrokerSource, each: QueueRange, losses: Losses, scan: Scan, tally: ScanTally
) -> Generator[pa.RecordBatch, None, list[QueueRange]]:
    """Yield messages up to the first loss; return the ranges that remain to be read.

    A range with a corrupt record is halved until the record is alone in its range.
    """
    before = tally.entries
    try:
        yield from scan(each, tally)
    except (OffsetOutOfRangeError, TopicNotFoundError, QueueNotFoundError) as error:
        # Not one past the last message returned: a filter may have skipped messages after it.
        at = each.start + tally.entries - before
        has = source.queue_bounds([each.queue])[each.queue]
        end = min(each.end, max(at, has.maximum))
        begin = min(max(at, has.minimum), end)
        lost = begin - at + each.end - end
        if not lost:  # Unless the queue was truncated, and other messages have these offsets.
            begin, end = at, max(at, _valid_end(source, each, error))
            lost = each.end - end
        log_to_stderr()
        outcome = f"reads the rest of [{at}, {each.end}): [{begin}, {end})"
        losses.report(each.queue, lost, outcome, _as_loss(error))
        return [replace(each, start=begin, end=end)] if begin < end else []
    except RecordDamagedError as error:
        at = each.start + tally.entries - before
        half = at + (each.end - at) // 2
        if at < half:
            return [replace(each, start=at, end=half), replace(each, start=half)]
        _report_damaged(losses, each.queue, error)
    return []


def _valid_end(source: BrokerSource, each: QueueRange, error: PyrocketError) -> int:
    """Return where recoveries have truncated a range; raise the error if they have not."""
    epochs = {} if each.epoch is None else {each.queue.broker: each.epoch}
    cut = source.truncations(epochs, [each.queue]).get(each.queue, each.end)
    if cut >= each.end:
        raise error
    return cut


def _report_damaged(losses: Losses, queue: MessageQueue, error: RecordDamagedError) -> None:
    log_to_stderr()
    losses.report(queue, 1, "continues after it", _as_loss(error))


def _as_loss(
    error: DataLossError | TopicNotFoundError | QueueNotFoundError | RecordDamagedError,
) -> DataLossError:
    if isinstance(error, DataLossError):
        return error
    return DataLossError(error.message, code=error.code)
