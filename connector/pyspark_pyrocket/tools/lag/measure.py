"""How far a query is behind: what lies between where a micro-batch has ended and the queues' ends.

Spark tells both with each micro-batch; the store adds what offsets do not say.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyrocket import QueueOffsets, Store
from pyrocket.errors import DataLossError, PyrocketError

from pyspark_pyrocket.source.stream_offset import StreamOffset


@dataclass(frozen=True, kw_only=True)
class TopicLag:
    """How far a query is behind in one topic.

    bytes_left: in the log, estimated from a few records of each queue. latency_ms: the age of the
    oldest message that is not read, 0 where there is none, as RocketMQ's ConsumerLagCalculator has
    it. Both are None without the store.
    lost: messages that were gone before the query came to them, since it began.
    """

    topic: str
    broker: str
    messages: int
    bytes_left: int | None = None
    latency_ms: int | None = None
    lost: int = 0

    def __str__(self) -> str:
        size = "" if self.bytes_left is None else f", {self.bytes_left:,} bytes"
        age = "" if self.latency_ms is None else f", {self.latency_ms / 1000:.1f} s"
        lost = f", {self.lost:,} lost" if self.lost else ""
        return f"{self.topic} by {self.messages:,} messages{size}{age}{lost}"


def lag_of(source: Mapping[str, Any], store: Store | None = None) -> list[TopicLag]:
    """Return the lags of one source of a query's progress, by topic; none if it is not pyrocket's.

    source: an entry of `sources` in Spark's progress. Without the store, or with another one than
    the source reads, they are in messages only.
    """
    end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
    if end is None or latest is None:
        return []
    known = store if store is not None and store.uuid == end.source.store else None
    return [_topic_lag(topic, end, latest, known) for topic in latest.offsets]


def _offset(value: object) -> StreamOffset | None:
    """Return an offset of ours; the listener's is text, that of a progress as JSON is not."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        return StreamOffset.from_json(parsed) if isinstance(parsed, dict) else None
    except (ValueError, DataLossError):
        return None


def _topic_lag(
    topic: str, end: StreamOffset, latest: StreamOffset, store: Store | None
) -> TopicLag:
    # A queue that the query does not know yet is read from its first message on; 0 if unknown.
    unread = {
        queue: (end.offsets.get(topic, {}).get(queue, 0), until)
        for queue, until in latest.offsets[topic].items()
    }
    bounds = _bounds(store, topic)
    left = [
        (queue, max(begin, bounds[queue].minimum if queue in bounds else 0), until)
        for queue, (begin, until) in unread.items()
    ]
    left = [each for each in left if each[1] < each[2]]
    measured = store is not None and topic in end.topic_ids
    return TopicLag(
        topic=topic,
        broker=latest.broker,
        messages=sum(until - begin for _, begin, until in left),
        bytes_left=_bytes(store, topic, left) if store and measured else None,
        latency_ms=_latency(store, topic, left) if store and measured else None,
        lost=sum(end.lost.get(topic, {}).values()),
    )


def _bounds(store: Store | None, topic: str) -> Mapping[int, QueueOffsets]:
    if store is None:
        return {}
    try:
        return store.offsets(topic)
    except PyrocketError:
        return {}


_Left = list[tuple[int, int, int]]
"""(queue, first unread, end)"""


def _bytes(store: Store, topic: str, left: _Left) -> int:
    return sum(store.raw.log_span(topic, queue, begin, until).bytes for queue, begin, until in left)


def _latency(store: Store, topic: str, left: _Left) -> int:
    oldest = min(_first_stored(store, topic, left), default=None)
    return 0 if oldest is None else max(0, store.now() - oldest)


def _first_stored(store: Store, topic: str, left: _Left) -> Iterator[int]:
    for queue, begin, _ in left:
        try:
            messages = store.read(topic, queue, begin, 1)
        except PyrocketError:  # Deleted just now.
            continue
        yield from (message.store_timestamp for message in messages)
