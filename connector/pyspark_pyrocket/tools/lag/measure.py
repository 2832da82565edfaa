"""Measures the lag of a query: from the end of a micro-batch to the ends of the queues.

Spark's progress contains both ends for each micro-batch; the store adds bytes and latency.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from pyrocket import QueueOffsets, QueueRange
from pyrocket.errors import DataLossError, PyrocketError

from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.transport.interface import Bounds, MessageSource
from pyspark_pyrocket.transport.targets import opened_source, target_at

_NO_BOUNDS = QueueOffsets(0, 0)


@dataclass(frozen=True, kw_only=True)
class TopicLag:
    """The lag of a query in one topic.

    bytes_left: unread bytes in the log, estimated from a few records of each queue. latency_ms: the
    age of the oldest unread message, 0 if there is none, as in RocketMQ's ConsumerLagCalculator.
    Both are None without the store.
    lost: messages that were lost before the query read them, over all its runs.
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


def lag_of(
    progress: Mapping[str, Any], store: str | PathLike[str] | MessageSource | None = None
) -> list[TopicLag]:
    """Return the lag in each topic of one source of a query; an empty list for other sources.

    progress: an entry of `sources` in Spark's progress. store: the directory that the query reads,
        or a source that stays open between calls. Without a store, or if the query reads another
        one, lags are in messages only. Raises StoreNotFoundError.

        [lag_of(each, "/data/store") for each in json.loads(query.lastProgress.json)["sources"]]
    """
    if isinstance(store, str | PathLike):
        with opened_source(target_at(store)) as opened:
            return lag_of(progress, opened)
    end, latest = _offset(progress.get("endOffset")), _offset(progress.get("latestOffset"))
    if end is None or latest is None:
        return []
    ours = store is not None and _store_id(store) == end.source.store
    source = store if ours else None
    unread: dict[str, list[QueueRange]] = {topic: [] for topic in latest.topics}
    for queue, at in latest.offsets.items():
        # A queue that is new to the query is read from its first message; 0 if that is unknown.
        unread[queue.topic].append(QueueRange(queue, end.offsets.get(queue, 0), at))
    lost = end.lost.by_topic()
    return [
        _topic_lag(
            topic,
            latest.broker,
            ranges,
            source,
            measured=topic in end.topic_ids,
            lost=sum(lost.get(topic, {}).values()),
        )
        for topic, ranges in unread.items()
    ]


def _offset(value: object) -> StreamOffset | None:
    """Accept an offset either as JSON text (listener) or as a dict (progress JSON)."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        return StreamOffset.from_json(parsed) if isinstance(parsed, dict) else None
    except (ValueError, DataLossError):
        return None


def _topic_lag(
    topic: str,
    broker: str,
    unread: Sequence[QueueRange],
    source: MessageSource | None,
    *,
    measured: bool,
    lost: int,
) -> TopicLag:
    bounds = _bounds(source, topic)
    left = [
        QueueRange(
            each.queue, max(each.start, bounds.get(each.queue, _NO_BOUNDS).minimum), each.end
        )
        for each in unread
    ]
    left = [each for each in left if each.rows > 0]
    return TopicLag(
        topic=topic,
        broker=broker,
        messages=sum(each.rows for each in left),
        bytes_left=sum(span.bytes for span in source.sizes(left)) if source and measured else None,
        latency_ms=_latency(source, left) if source and measured else None,
        lost=lost,
    )


def _store_id(source: MessageSource) -> str:
    ((_, identity),) = source.identities().items()
    return identity.store


def _bounds(source: MessageSource | None, topic: str) -> Bounds:
    if source is None:
        return {}
    try:
        return source.bounds([topic])
    except PyrocketError:
        return {}


def _latency(source: MessageSource, left: list[QueueRange]) -> int:
    oldest = min(_first_stored(source, left), default=None)
    return 0 if oldest is None else max(0, source.now_ms() - oldest)


def _first_stored(source: MessageSource, left: list[QueueRange]) -> Iterator[int]:
    for each in left:
        first = QueueRange(each.queue, each.start, each.start + 1)
        try:
            for some in source.slices([first]):
                yield from some.records.store_timestamp.tolist()
        except PyrocketError:  # Deleted after the micro-batch.
            continue
