"""How much of the backlog one micro-batch takes. Integers only."""

from collections.abc import Iterable, Iterator, Mapping

from pyrocket import ByteSpan

from pyspark_pyrocket.options.positions import QueueNumbers
from pyspark_pyrocket.source.sizes import ALL, Sizes

_Queue = tuple[str, int]
"""Topic and queue id."""

_ROUNDS = 4
"""What queues with little to give leave over goes to the others, so many times at most."""

_GOOD_ENOUGH = 20
"""A rest of one part in so many is not worth another round."""


def backlog_of(start: QueueNumbers, end: QueueNumbers) -> int:
    """Return how many messages lie between two offsets."""
    return sum(last - first for _, first, last in _waiting(start, end))


def take_rows(start: QueueNumbers, end: QueueNumbers, max_rows: int) -> QueueNumbers:
    """Return offsets between `start` and `end` that let through about `max_rows` messages.

    Every queue with a backlog gives one message at least; otherwise no more than `max_rows` pass,
    shared out in proportion to the backlogs.
    """
    backlog = {queue: last - first for queue, first, last in _waiting(start, end)}
    shares = _shares(backlog, max_rows)
    return {
        topic: {
            queue: start[topic][queue] + shares.get((topic, queue), 0) for queue in sorted(queues)
        }
        for topic, queues in end.items()
    }


def take_bytes(
    start: QueueNumbers, end: QueueNumbers, max_bytes: int, sizes: Sizes
) -> QueueNumbers:
    """Return offsets between `start` and `end` that let through about `max_bytes` of the log.

    Every queue with a backlog gives one message at least; otherwise no more than `max_bytes` pass,
    shared out in proportion to what the backlogs seem to hold. What it costs grows with what is
    taken, not with the backlog.
    """
    waiting = {queue: (first, last) for queue, first, last in _waiting(start, end)}
    spans = {queue: sizes.log_span(*queue, *limits) for queue, limits in waiting.items()}
    if _fits(spans.values(), max_bytes):
        return end
    reached = _reach(
        waiting, {queue: span.bytes for queue, span in spans.items()}, max_bytes, sizes
    )
    return {
        topic: {queue: reached.get((topic, queue), offset) for queue, offset in queues.items()}
        for topic, queues in end.items()
    }


def _waiting(start: QueueNumbers, end: QueueNumbers) -> Iterator[tuple[_Queue, int, int]]:
    for topic, queues in end.items():
        for queue, offset in queues.items():
            if offset > start[topic][queue]:
                yield (topic, queue), start[topic][queue], offset


def _shares(backlog: Mapping[_Queue, int], max_rows: int) -> dict[_Queue, int]:
    if sum(backlog.values()) <= max_rows:
        return dict(backlog)
    spare = max(0, max_rows - len(backlog))
    weight = sum(backlog.values()) - len(backlog)
    if not spare or not weight:
        return dict.fromkeys(backlog, 1)
    shares = {key: 1 + (rows - 1) * spare // weight for key, rows in backlog.items()}
    # What rounding left over goes to those it took most from.
    left = spare + len(backlog) - sum(shares.values())
    lost = sorted(backlog, key=lambda key: -((backlog[key] - 1) * spare % weight))
    for key in lost[:left]:
        shares[key] += 1
    return shares


def _fits(spans: Iterable[ByteSpan], max_bytes: int) -> bool:
    """Whether all of it lies so close together in the log that no sum is needed."""
    there = [span for span in spans if span.bytes]
    return not there or max(s.end for s in there) - min(s.start for s in there) <= max_bytes


def _reach(
    waiting: Mapping[_Queue, tuple[int, int]],
    guesses: Mapping[_Queue, int],
    max_bytes: int,
    sizes: Sizes,
) -> dict[_Queue, int]:
    """Return how far each queue gets: one message each, then their shares of what is left."""
    reached, left = {}, max_bytes
    for queue, (first, _) in waiting.items():
        reached[queue] = first + 1
        left -= sizes.cut_by_bytes(*queue, first, first + 1, [ALL])[0][1]
    more = {
        queue: max(guesses[queue], 1) for queue, at in reached.items() if at < waiting[queue][1]
    }
    for _ in range(_ROUNDS):
        if left <= max_bytes // _GOOD_ENOUGH or not more:
            break
        weight, quota = sum(more.values()), left
        for queue, guess in list(more.items()):
            share = [quota * guess // weight]
            offset, used = sizes.cut_by_bytes(*queue, reached[queue], waiting[queue][1], share)[0]
            reached[queue], left = offset, left - used
            more[queue] = max(guess - used, 1)
            if offset == waiting[queue][1]:
                del more[queue]
    return reached
