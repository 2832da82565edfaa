"""Reading a range, or single messages, of which some may be gone by the time a task comes there.

Log files are cleaned while tasks read, and a micro-batch may be replayed long after it was planned.
What it reads is fixed; with `onDataLoss` other than `fail` what is left of it is read.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from pyrocket import MessageLocations, QueueOffsets, ScanTally
from pyrocket.errors import (
    DataLossError,
    OffsetOutOfRangeError,
    QueueNotFoundError,
    RecordDamagedError,
    TopicNotFoundError,
)

from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.source.data_loss import GO_ON, Losses
from pyspark_pyrocket.source.ranges import QueueRange
from pyspark_pyrocket.worker import log_to_stderr

_EVER = 2**63 - 1


class Scan(Protocol):
    """Scans some of the range's messages, [start, end), for some columns."""

    def __call__(
        self, start: int, end: int, columns: Sequence[str], *, tally: ScanTally
    ) -> Iterator[pa.RecordBatch]:
        """Yield those that are wanted; count in `tally` how far it has come."""
        ...


class PlacesScan(Protocol):
    """Scans the messages at some places."""

    def __call__(self, places: MessageLocations, tally: ScanTally) -> Iterator[pa.RecordBatch]:
        """Yield those that are wanted; count in `tally` how far it has come."""
        ...


class Ranges(Protocol):
    """A store, or what stands for one in tests."""

    def queue_range(self, topic: str, queue_id: int) -> QueueOffsets:
        """Return what a queue has now."""
        ...


def read_range(
    store: Ranges,
    each: QueueRange,
    columns: Sequence[str],
    loss: LossPolicy,
    scan: Scan,
    tally: ScanTally,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the range, or raise what `scan` does about those that are gone.

    Unless the policy is to go on: then they are passed over, counted and warned of, as are single
    messages whose records are damaged. Other damage is raised all the same. `tally` counts what
    `scan` does.
    """
    if loss.fails:
        yield from _all_or_nothing(each, columns, scan, tally)
        return
    left = [each]
    while left:
        left = (yield from _read_on(store, left[0], columns, Losses(loss), scan, tally)) + left[1:]


def read_places(
    store: Ranges, places: MessageLocations, loss: LossPolicy, scan: PlacesScan
) -> Iterator[pa.RecordBatch]:
    """Do what `read_range` does with the messages of one queue at single places."""
    left = [places] if len(places) else []
    while left:
        now = left.pop(0)
        tally = ScanTally()
        try:
            yield from scan(now, tally)
        except OffsetOutOfRangeError as error:
            if loss.fails:
                raise _with_way_out(error) from error
            ahead = now[slice(tally.entries, len(now))]
            rest = ahead.within(store.queue_range(now.topic, now.queue_id).minimum, _EVER)
            gone = len(ahead) - len(rest)
            if not gone:
                raise
            log_to_stderr()
            outcome = f"reads the {len(rest)} left of those that were found"
            Losses(loss).note(ahead.topic, ahead.queue_id, gone, outcome, error)
            left = [rest, *left] if len(rest) else left
        except RecordDamagedError as error:
            ahead = now[slice(tally.entries, len(now))]
            half = len(ahead) // 2
            if loss.fails:
                raise
            if half:
                left = [ahead[slice(0, half)], ahead[slice(half, len(ahead))], *left]
            else:
                _note_damaged(Losses(loss), ahead.topic, ahead.queue_id, error)


def _all_or_nothing(
    each: QueueRange, columns: Sequence[str], scan: Scan, tally: ScanTally
) -> Iterator[pa.RecordBatch]:
    try:
        yield from scan(each.start, each.end, columns, tally=tally)
    except OffsetOutOfRangeError as error:
        raise _with_way_out(error) from error


def _with_way_out(error: OffsetOutOfRangeError) -> OffsetOutOfRangeError:
    os_error_remedy = f"{error.remedy} {GO_ON}".lstrip()
    return OffsetOutOfRangeError(error.message, remedy=os_error_remedy, code=error.code)


def _read_on(
    store: Ranges,
    each: QueueRange,
    columns: Sequence[str],
    losses: Losses,
    scan: Scan,
    tally: ScanTally,
) -> Generator[pa.RecordBatch, None, list[QueueRange]]:
    """Yield messages up to some that are gone or damaged; return what is left to read after them.

    A slice with a damaged record cannot be read: it is cut in two until that is alone.
    """
    before = tally.entries
    try:
        yield from scan(each.start, each.end, columns, tally=tally)
    except (OffsetOutOfRangeError, TopicNotFoundError, QueueNotFoundError) as error:
        # Not the last message's offset: a filter passes over messages that are not lost.
        at = each.start + tally.entries - before
        has = store.queue_range(each.topic, each.queue_id)
        end = min(each.end, max(at, has.maximum))
        begin = min(max(at, has.minimum), end)
        gone = begin - at + each.end - end
        if not gone:
            raise
        log_to_stderr()
        outcome = f"reads what is left of [{at}, {each.end}): [{begin}, {end})"
        losses.note(each.topic, each.queue_id, gone, outcome, _as_loss(error))
        return [replace(each, start=begin, end=end)] if begin < end else []
    except RecordDamagedError as error:
        at = each.start + tally.entries - before
        half = at + (each.end - at) // 2
        if at < half:
            return [replace(each, start=at, end=half), replace(each, start=half)]
        _note_damaged(losses, each.topic, each.queue_id, error)
    return []


def _note_damaged(losses: Losses, topic: str, queue_id: int, error: RecordDamagedError) -> None:
    log_to_stderr()
    losses.note(topic, queue_id, 1, "reads what follows", _as_loss(error))


def _as_loss(
    error: DataLossError | TopicNotFoundError | QueueNotFoundError | RecordDamagedError,
) -> DataLossError:
    if isinstance(error, DataLossError):
        return error
    return DataLossError(error.message, code=error.code)
