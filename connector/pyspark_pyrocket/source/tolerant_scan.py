"""Reading ranges or single messages of which some may be deleted by the time a task reads them.

Log files are cleaned while tasks read, and a micro-batch may be replayed long after it was planned.
Its ranges are fixed; with `onDataLoss` other than `fail` the remaining messages are read.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import pyarrow as pa
from pyrocket import MessageLocations, MessageQueue, ScanTally
from pyrocket.errors import (
    DataLossError,
    OffsetOutOfRangeError,
    QueueNotFoundError,
    RecordDamagedError,
    TopicNotFoundError,
)

from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.source.data_loss import GO_ON, Losses
from pyspark_pyrocket.transport.interface import Bounds, MessageSource, QueueRange
from pyspark_pyrocket.worker import log_to_stderr

_NO_END = 2**63 - 1

Batches = Iterator[pa.RecordBatch]
Scan = Callable[[QueueRange, ScanTally], Batches]
"""Yields the messages of a range that match the filter, and counts its progress."""

ScanLocations = Callable[[MessageLocations, ScanTally], Batches]
"""The same for single messages of one queue."""


def read_range(
    source: MessageSource, each: QueueRange, loss: LossPolicy, scan: Scan, tally: ScanTally
) -> Batches:
    """Yield the messages of the range, or raise the error of `scan` about those that are deleted.

    Unless the policy is to continue: then they are skipped, counted and warned of, as are single
    messages whose records are damaged. Other damage is always raised. `tally` counts what `scan`
    does.
    """
    if loss.fails:
        yield from _all_or_nothing(each, scan, tally)
        return
    left = [each]
    while left:
        left = (yield from _continue(source, left[0], Losses(loss), scan, tally)) + left[1:]


def read_locations(
    source: MessageSource, locations: MessageLocations, loss: LossPolicy, scan: ScanLocations
) -> Batches:
    """Yield single messages of one queue as `read_range` does."""
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
            gone = len(ahead) - len(rest)
            if not gone:
                raise
            log_to_stderr()
            outcome = f"reads the {len(rest)} left of the messages found"
            Losses(loss).note(queue, gone, outcome, error)
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
                _note_damaged(Losses(loss), queue, error)


def _bounds_now(source: MessageSource, locations: MessageLocations) -> tuple[MessageQueue, Bounds]:
    (broker,) = source.identities()
    queue = MessageQueue(locations.topic, broker, locations.queue_id)
    return queue, source.queue_bounds([queue])


def _all_or_nothing(each: QueueRange, scan: Scan, tally: ScanTally) -> Batches:
    try:
        yield from scan(each, tally)
    except OffsetOutOfRangeError as error:
        raise _with_remedy(error) from error


def _with_remedy(error: OffsetOutOfRangeError) -> OffsetOutOfRangeError:
    remedy = f"{error.remedy} {GO_ON}".lstrip()
    return OffsetOutOfRangeError(error.message, remedy=remedy, code=error.code)


def _continue(
    source: MessageSource, each: QueueRange, losses: Losses, scan: Scan, tally: ScanTally
) -> Generator[pa.RecordBatch, None, list[QueueRange]]:
    """Yield messages up to deleted or damaged ones; return the rest to read.

    A slice with a damaged record cannot be read: it is halved until that record is alone.
    """
    before = tally.entries
    try:
        yield from scan(each, tally)
    except (OffsetOutOfRangeError, TopicNotFoundError, QueueNotFoundError) as error:
        # Not the last message's offset: a filter skips messages that are not lost.
        at = each.start + tally.entries - before
        has = source.queue_bounds([each.queue])[each.queue]
        end = min(each.end, max(at, has.maximum))
        begin = min(max(at, has.minimum), end)
        gone = begin - at + each.end - end
        if not gone:
            raise
        log_to_stderr()
        outcome = f"reads what is left of [{at}, {each.end}): [{begin}, {end})"
        losses.note(each.queue, gone, outcome, _as_loss(error))
        return [replace(each, start=begin, end=end)] if begin < end else []
    except RecordDamagedError as error:
        at = each.start + tally.entries - before
        half = at + (each.end - at) // 2
        if at < half:
            return [replace(each, start=at, end=half), replace(each, start=half)]
        _note_damaged(losses, each.queue, error)
    return []


def _note_damaged(losses: Losses, queue: MessageQueue, error: RecordDamagedError) -> None:
    log_to_stderr()
    losses.note(queue, 1, "reads what follows", _as_loss(error))


def _as_loss(
    error: DataLossError | TopicNotFoundError | QueueNotFoundError | RecordDamagedError,
) -> DataLossError:
    if isinstance(error, DataLossError):
        return error
    return DataLossError(error.message, code=error.code)
