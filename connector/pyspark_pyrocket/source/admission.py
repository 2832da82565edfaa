"""Decides when a stream's next micro-batch starts, and how much of the backlog it reads.

Spark passes only one limit to a source, so all limits of the query are applied here, unless Spark
requests everything. The smallest limit applies. Uses only integer arithmetic.
"""

from collections.abc import Iterable, Mapping

from pyrocket import ByteSpan, MessageQueue, QueueRange

from pyspark_pyrocket.options.batching import Admission
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.partitions import NO_LIMIT
from pyspark_pyrocket.transport.interface import MessageSource
from pyspark_pyrocket.worker import LOG

_ROUNDS = 4
"""Maximum number of rounds that redistribute bytes which small backlogs do not need."""

_GOOD_ENOUGH = 20
"""A remainder of at most the limit divided by this number is not redistributed."""


class Intake:
    """Applies the limits of one query. The first micro-batch of a run is never delayed."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._last_ms: int | None = None
        self._holds = self._limits = False

    def take(
        self, source: MessageSource, start: Offsets, end: Offsets, *, waits: bool = True
    ) -> Offsets:
        """Return the end offsets of the next micro-batch, between `start` and `end`.

        If `waits` and there are too few messages for a micro-batch yet, return `start`.
        """
        backlog = end.minus(start).total()
        is_short = 0 < backlog < (self._admission.min_rows or 0)
        self._holds = waits and is_short and self._is_early(source)
        if self._holds:
            return start
        taken = self._limit(source, start, end)
        if backlog:
            self._last_ms = source.now_ms()
            self._log_limit(backlog, taken.minus(start).total())
        return taken

    def is_over(self, source: MessageSource) -> bool:
        """Return whether messages were held back and the maximum delay has passed."""
        return self._holds and not self._is_early(source)

    def _is_early(self, source: MessageSource) -> bool:
        # A clock that was set back must not delay a micro-batch for long.
        since = -1 if self._last_ms is None else source.now_ms() - self._last_ms
        return 0 <= since < self._admission.max_delay_ms

    def _limit(self, source: MessageSource, start: Offsets, end: Offsets) -> Offsets:
        limits = self._admission
        if limits.max_rows is not None:
            end = take_rows(start, end, limits.max_rows)
        if limits.max_bytes is not None:
            end = take_bytes(start, end, limits.max_bytes, source)
        return end

    def _log_limit(self, backlog: int, taken: int) -> None:
        """Log when a limit starts to hold messages back, and when it no longer does."""
        limits = taken < backlog
        if limits and not self._limits:
            LOG.info(
                "%d messages are pending; a micro-batch reads %s: the next one reads %d",
                backlog,
                self._admission.describe(),
                taken,
            )
        elif self._limits and not limits:
            LOG.info("the limit no longer applies: micro-batches read all pending messages")
        self._limits = limits


def take_rows(start: Offsets, end: Offsets, max_rows: int) -> Offsets:
    """Return offsets between `start` and `end` that admit about `max_rows` messages.

    Every queue with a backlog contributes at least one message. Apart from that, at most `max_rows`
    are admitted, shared in proportion to the backlogs.
    """
    shares = _shares(end.minus(start), max_rows)
    return Offsets({queue: start[queue] + shares.get(queue, 0) for queue in end})


def take_bytes(start: Offsets, end: Offsets, max_bytes: int, source: MessageSource) -> Offsets:
    """Return offsets between `start` and `end` that admit about `max_bytes` of the log.

    Every queue with a backlog contributes at least one message. Apart from that, at most
    `max_bytes` are admitted, shared in proportion to the estimated sizes of the backlogs. The cost
    is proportional to the bytes admitted, not to the backlog.
    """
    waiting = [QueueRange(queue, start[queue], end[queue]) for queue in end.minus(start)]
    spans = source.sizes(waiting)
    if _fits(zip(waiting, spans, strict=True), max_bytes):
        return end
    return end.merge(_ends_within(waiting, [span.bytes for span in spans], max_bytes, source))


def _shares(backlog: Offsets, max_rows: int) -> Mapping[MessageQueue, int]:
    if backlog.total() <= max_rows:
        return backlog
    spare = max(0, max_rows - len(backlog))
    weight = backlog.total() - len(backlog)
    if not spare or not weight:
        return dict.fromkeys(backlog, 1)
    shares = {key: 1 + (rows - 1) * spare // weight for key, rows in backlog.items()}
    # The queues that lost most by rounding down get the remaining rows.
    left = spare + len(backlog) - sum(shares.values())
    lost = sorted(backlog, key=lambda key: -((backlog[key] - 1) * spare % weight))
    for key in lost[:left]:
        shares[key] += 1
    return shares


def _fits(spans: Iterable[tuple[QueueRange, ByteSpan]], max_bytes: int) -> bool:
    """Return whether all messages lie within `max_bytes` of the logs: then no sum is needed."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for part, span in spans:
        broker = part.queue.broker
        if span.bytes:
            first[broker] = min(span.start, first.get(broker, span.start))
            last[broker] = max(span.end, last.get(broker, span.end))
    return sum(last[broker] - first[broker] for broker in last) <= max_bytes


def _ends_within(
    waiting: list[QueueRange], guesses: list[int], max_bytes: int, source: MessageSource
) -> dict[MessageQueue, int]:
    """Return the end offset of each queue: one message, then its share of the remaining bytes."""
    firsts = [QueueRange(part.queue, part.start, part.start + 1) for part in waiting]
    sizes = source.split_at_bytes([(first, [NO_LIMIT]) for first in firsts])
    left = max_bytes - sum(size for ((_, size),) in sizes)
    reached = {part.queue: part.end for part in firsts}
    more = {
        QueueRange(part.queue, first.end, part.end): max(guess, 1)
        for part, first, guess in zip(waiting, firsts, guesses, strict=True)
        if first.end < part.end
    }
    for _ in range(_ROUNDS):
        if left <= max_bytes // _GOOD_ENOUGH or not more:
            break
        weight = sum(more.values())
        shares = [(part, [left * guess // weight]) for part, guess in more.items()]
        splits = source.split_at_bytes(shares)
        rest = {}
        for (part, guess), ((offset, used),) in zip(more.items(), splits, strict=True):
            reached[part.queue], left = offset, left - used
            if offset < part.end:
                rest[QueueRange(part.queue, offset, part.end)] = max(guess - used, 1)
        more = rest
    return reached
