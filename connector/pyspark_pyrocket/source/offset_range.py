"""Where a read begins and ends: what the options say, looked up in a store on the driver."""

from pyrocket import Store
from pyrocket.errors import OffsetOutOfRangeError, OptionError

from pyspark_pyrocket.options.policies import SKIP, LossPolicy
from pyspark_pyrocket.options.positions import (
    EARLIEST,
    NAMES,
    Bounds,
    Committed,
    LastMessages,
    OffsetChoice,
    QueueNumbers,
    TimeChoice,
    bounds_at,
)
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.data_loss import Losses, out_of_range
from pyspark_pyrocket.worker import LOG

_MANY = 20


def find_start(store: Store, options: ReadOptions, bounds: Bounds, losses: Losses) -> QueueNumbers:
    """Return the first offset to read of each queue, all within `bounds`.

    Raises OptionError and, about messages that are gone, DataLossError or what the policy says.
    """
    place = options.span.starting
    if isinstance(place, LastMessages):
        return _before(_end_of(store, options, bounds), bounds, place.count)
    if isinstance(place, TimeChoice):
        return _at_times(store, place, bounds)
    if isinstance(place, Committed):
        return _committed(store, place, bounds, losses)
    return _chosen(place, place.resolve(bounds, store.broker_name), bounds, losses)


def find_span(
    store: Store, options: ReadOptions, bounds: Bounds, losses: Losses
) -> tuple[QueueNumbers, QueueNumbers]:
    """Return where each queue of a batch begins and ends; raises what `find_start` does."""
    for note in options.span.notes:
        LOG.info("%s", note)
    start = find_start(store, options, bounds, losses)
    end = _end_of(store, options, bounds)
    if isinstance(options.span.starting, Committed):
        # A group that is already past the end has nothing to read.
        end = {
            topic: {queue: max(offset, start[topic][queue]) for queue, offset in queues.items()}
            for topic, queues in end.items()
        }
    _check_order(start, end)
    return start, end


def _end_of(store: Store, options: ReadOptions, bounds: Bounds) -> QueueNumbers:
    place = options.span.ending
    # An end that is gone leaves its queue empty: only `fail` has something to say about it.
    losses = Losses(LossPolicy() if options.loss.fails else LossPolicy(policy=SKIP), quiet=True)
    if isinstance(place, TimeChoice):
        return _at_times(store, place, bounds)
    if isinstance(place, Committed):
        return _committed(store, place, bounds, losses)
    assert isinstance(place, OffsetChoice)
    return _chosen(place, place.resolve(bounds, store.broker_name), bounds, losses)


def _chosen(
    place: OffsetChoice, offsets: QueueNumbers, bounds: Bounds, losses: Losses
) -> QueueNumbers:
    """Return offsets that a user named; those that are gone are a loss, later ones a mistake."""
    for topic, queues in offsets.items():
        for queue, offset in queues.items():
            limits = bounds[topic][queue]
            where = f"Option {place.option!r}, topic {topic!r}, queue {queue}"
            gap = out_of_range(where, offset, limits)
            if gap is None:
                continue
            if offset > limits.maximum:
                raise OffsetOutOfRangeError(
                    gap.error.message, remedy="There is no such message yet: choose one before."
                )
            queues[queue] = losses.settle(topic, queue, gap, limits)
    return offsets


def _at_times(store: Store, place: TimeChoice, bounds: Bounds) -> QueueNumbers:
    times = place.resolve(bounds, store.broker_name, store.now())
    found: QueueNumbers = {}
    for topic, queues in bounds.items():
        found[topic] = {}
        for queue, limits in queues.items():
            # The queue may have grown since its bounds were taken.
            offset = min(store.offset_by_time(topic, queue, times[topic][queue]), limits.maximum)
            none = offset == limits.maximum and limits.minimum < limits.maximum
            if none and place.without is None:
                raise OptionError(
                    f"Option {place.option!r}: topic {topic!r} queue {queue} has no message "
                    f"from {times[topic][queue]} ms on.",
                    remedy="Set startingOffsetsByTimestampStrategy to latest or earliest.",
                    code="NO_MESSAGE_SINCE",
                )
            if none and place.without == EARLIEST:
                offset = limits.minimum
            found[topic][queue] = max(offset, limits.minimum)
    return found


def _committed(store: Store, place: Committed, bounds: Bounds, losses: Losses) -> QueueNumbers:
    found: QueueNumbers = {}
    for topic, queues in bounds.items():
        known = store.groups.committed(place.group, topic)
        # Where it has been in other queues, one without a commit is new to it.
        word = EARLIEST if known else place.without
        found[topic] = dict(bounds_at(word, {topic: queues})[topic])
        fresh = sorted(set(queues) - set(known))
        if fresh:
            LOG.warning(
                "group %s has committed nothing in topic %r queues %s: %s counts there",
                place.group,
                topic,
                fresh,
                NAMES[word],
            )
        for queue in set(queues) & set(known):
            where = f"What group {place.group!r} has committed in topic {topic!r}, queue {queue}"
            gap = out_of_range(where, known[queue], queues[queue])
            found[topic][queue] = (
                losses.settle(topic, queue, gap, queues[queue]) if gap else known[queue]
            )
    return found


def _before(end: QueueNumbers, bounds: Bounds, count: int) -> QueueNumbers:
    return {
        topic: {
            queue: max(bounds[topic][queue].minimum, offset - count)
            for queue, offset in queues.items()
        }
        for topic, queues in end.items()
    }


def _check_order(start: QueueNumbers, end: QueueNumbers) -> None:
    wrong = [
        f"topic {topic!r} queue {queue}: {start[topic][queue]} > {offset}"
        for topic, queues in end.items()
        for queue, offset in queues.items()
        if start[topic][queue] > offset
    ]
    if wrong:
        raise OptionError(
            f"The start lies beyond the end for {'; '.join(wrong[:_MANY])}.",
            remedy="Change where the read starts or ends.",
            code="START_BEYOND_END",
        )
