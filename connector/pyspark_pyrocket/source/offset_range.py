"""Resolves the options for the start and end of a read to offsets, on the driver."""

from pyrocket import MessageQueue, QueueOffsets
from pyrocket.errors import OffsetOutOfRangeError, OptionError

from pyspark_pyrocket.options.json_values import exactly
from pyspark_pyrocket.options.policies import SKIP, LossPolicy
from pyspark_pyrocket.options.positions import (
    EARLIEST,
    LATEST,
    NAMES,
    CommittedOffsets,
    LastMessages,
    OffsetChoice,
    TimeChoice,
)
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.data_loss import Losses, out_of_range
from pyspark_pyrocket.source.offsets import Offsets, topics_of
from pyspark_pyrocket.transport.interface import Bounds, MessageSource
from pyspark_pyrocket.worker import LOG

_MAX_NAMED = 20


def find_start(
    source: MessageSource, options: ReadOptions, bounds: Bounds, losses: Losses
) -> Offsets:
    """Return the first offset to read of each queue, within `bounds`.

    Raises OptionError; for lost messages DataLossError, depending on the policy.
    """
    start = options.span.starting
    if isinstance(start, LastMessages):
        ends = _end(source, options, bounds).items()
        return Offsets({at: max(bounds[at].minimum, end - start.count) for at, end in ends})
    return _resolved(source, start, bounds, losses)


def find_span(
    source: MessageSource, options: ReadOptions, bounds: Bounds, losses: Losses
) -> tuple[Offsets, Offsets]:
    """Return the start and end offsets of a batch. Raises the same errors as `find_start`."""
    for note in options.span.notes:
        LOG.info("%s", note)
    start = find_start(source, options, bounds, losses)
    end = _end(source, options, bounds)
    # A group, or a queue that continues at its end after a loss, may be past the end of the read.
    ahead = start if isinstance(options.span.starting, CommittedOffsets) else losses.counts
    end = end.merge({queue: max(end[queue], start[queue]) for queue in ahead})
    _check_order(start, end)
    return start, end


def _end(source: MessageSource, options: ReadOptions, bounds: Bounds) -> Offsets:
    # A queue whose end offset was deleted is read as empty; only `fail` raises.
    losses = Losses(LossPolicy() if options.loss.fails else LossPolicy(policy=SKIP), quiet=True)
    end = options.span.ending
    assert not isinstance(end, LastMessages)
    return _resolved(source, end, bounds, losses)


def _resolved(
    source: MessageSource,
    place: OffsetChoice | TimeChoice | CommittedOffsets,
    bounds: Bounds,
    losses: Losses,
) -> Offsets:
    if isinstance(place, TimeChoice):
        return _at_times(source, place, bounds)
    if isinstance(place, CommittedOffsets):
        return _committed(source, place, bounds, losses)
    if not place.queues:
        return Offsets.ends(bounds) if place.word == LATEST else Offsets.starts(bounds)
    return _chosen(place, bounds, losses)


def _chosen(place: OffsetChoice, bounds: Bounds, losses: Losses) -> Offsets:
    """Return the offsets given by the user; a deleted one is a loss, one after the end an error."""
    chosen = exactly(place.option, place.queues, bounds)
    offsets = Offsets()
    for queue, limits in bounds.items():
        offset = _number(chosen[queue], limits)
        where = f"Option {place.option!r}, topic {queue.topic!r}, queue {queue.queue_id}"
        gap = out_of_range(where, offset, limits)
        if gap is not None and offset > limits.maximum:
            raise OffsetOutOfRangeError(
                gap.error.message, remedy="There is no such message yet: choose an earlier offset."
            )
        offsets[queue] = offset if gap is None else losses.settle(queue, gap, limits)
    return offsets


def _number(value: int, limits: QueueOffsets) -> int:
    return {EARLIEST: limits.minimum, LATEST: limits.maximum}.get(value, value)


def _at_times(source: MessageSource, place: TimeChoice, bounds: Bounds) -> Offsets:
    now_ms = source.now_ms()
    times = (
        dict.fromkeys(bounds, place.moment.at(now_ms))
        if place.moment is not None
        else {
            queue: moment.at(now_ms)
            for queue, moment in exactly(place.option, place.queues, bounds).items()
        }
    )
    offsets = source.offsets_at(times)
    return Offsets(
        {
            queue: _first_since(place, queue, times[queue], offsets[queue], limits)
            for queue, limits in bounds.items()
        }
    )


def _first_since(
    place: TimeChoice, queue: MessageQueue, time_ms: int, offset: int, limits: QueueOffsets
) -> int:
    """Return the offset of the first message at or after a time, within the queue's bounds."""
    if offset < limits.maximum:  # The queue may have grown since its bounds were taken.
        return max(offset, limits.minimum)
    if limits.minimum == limits.maximum:
        return limits.maximum
    if place.without is None:
        raise OptionError(
            f"Option {place.option!r}: topic {queue.topic!r} queue {queue.queue_id} has no "
            f"message at or after {time_ms} ms.",
            remedy="Set startingOffsetsByTimestampStrategy to latest or earliest.",
            code="NO_MESSAGE_SINCE",
        )
    return limits.minimum if place.without == EARLIEST else limits.maximum


def _committed(
    source: MessageSource, place: CommittedOffsets, bounds: Bounds, losses: Losses
) -> Offsets:
    known = source.committed(place.group, topics_of(bounds))
    known_topics = set(topics_of(known))
    offsets, fresh = Offsets(), dict[str, list[int]]()
    for queue, limits in bounds.items():
        # A queue without a committed offset is new if other queues of its topic have one.
        word = EARLIEST if queue.topic in known_topics else place.without
        if queue not in known:
            offsets[queue] = _number(word, limits)
            fresh.setdefault(queue.topic, []).append(queue.queue_id)
            continue
        where = (
            f"Committed by group {place.group!r} in topic {queue.topic!r}, queue {queue.queue_id}"
        )
        gap = out_of_range(where, known[queue], limits)
        offsets[queue] = known[queue] if gap is None else losses.settle(queue, gap, limits)
    for topic, queues in fresh.items():
        LOG.warning(
            "group %s has no committed offset in topic %r queues %s: they start at %s",
            place.group,
            topic,
            sorted(queues),
            NAMES[EARLIEST if topic in known_topics else place.without],
        )
    return offsets


def _check_order(start: Offsets, end: Offsets) -> None:
    wrong = [f"{queue}: {start[queue]} > {at}" for queue, at in end.items() if start[queue] > at]
    if wrong:
        raise OptionError(
            f"The start is after the end for {'; '.join(wrong[:_MAX_NAMED])}.",
            remedy="Change where the read starts or ends.",
            code="START_BEYOND_END",
        )
