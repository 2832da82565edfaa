"""Reading a range, or single messages, of which some may be gone by the time a task comes there.

Log files are cleaned while tasks read, and a micro-batch may be replayed long after it was planned.
What it reads is fixed; with `onDataLoss` other than `fail` what is left of it is read.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from pyrocket import Places, QueueOffsets, ScanTally
from pyrocket.errors import (
    DataLossError,
    OffsetOutOfRangeError,
    QueueNotFoundError,
    TopicNotFoundError,
)

from pyspark_pyrocket.options.loss import LossPolicy
from pyspark_pyrocket.planning.losses import GO_ON, Losses
from pyspark_pyrocket.planning.ranges import QueueRange
from pyspark_pyrocket.processes import log_to_stderr

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

    def __call__(self, places: Places, *, tally: ScanTally) -> Iterator[pa.RecordBatch]:
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

    Unless the policy is to go on: then they are passed over, counted and warned of. What cannot
    be read though it is there is raised all the same. `tally` counts what `scan` does.
    """
    if loss.fails:
        yield from _all_or_nothing(each, columns, scan, tally)
        return
    left: QueueRange | None = each
    while left is not None:
        left = yield from _read_on(store, left, columns, Losses(loss), scan, tally)


def read_places(
    store: Ranges, places: Places, loss: LossPolicy, scan: PlacesScan
) -> Iterator[pa.RecordBatch]:
    """Do what `read_range` does with the messages of one queue at single places."""
    while len(places):
        tally = ScanTally()
        try:
            yield from scan(places, tally=tally)
        except OffsetOutOfRangeError as error:
            if loss.fails:
                raise _with_way_out(error) from error
            ahead = places[slice(tally.entries, len(places))]
            places = ahead.within(store.queue_range(places.topic, places.queue_id).minimum, _EVER)
            gone = len(ahead) - len(places)
            if not gone:
                raise
            log_to_stderr()
            outcome = f"reads the {len(places)} left of those that were found"
            Losses(loss).note(ahead.topic, ahead.queue_id, gone, outcome, error)
        else:
            return


def _all_or_nothing(
    each: QueueRange, columns: Sequence[str], scan: Scan, tally: ScanTally
) -> Iterator[pa.RecordBatch]:
    try:
        yield from scan(each.start, each.end, columns, tally=tally)
    except OffsetOutOfRangeError as error:
        raise _with_way_out(error) from error


def _with_way_out(error: OffsetOutOfRangeError) -> OffsetOutOfRangeError:
    way_out = f"{error.remedy} {GO_ON}".lstrip()
    return OffsetOutOfRangeError(error.message, remedy=way_out, code=error.code)


def _read_on(
    store: Ranges,
    each: QueueRange,
    columns: Sequence[str],
    losses: Losses,
    scan: Scan,
    tally: ScanTally,
) -> Generator[pa.RecordBatch, None, QueueRange | None]:
    """Yield messages up to some that are gone; return what is left to read behind them."""
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
        return replace(each, start=begin, end=end) if begin < end else None
    return None


def _as_loss(error: DataLossError | TopicNotFoundError | QueueNotFoundError) -> DataLossError:
    if isinstance(error, DataLossError):
        return error
    return DataLossError(error.message, code=error.code)
