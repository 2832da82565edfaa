"""Measures the lag of a query: from the end of a micro-batch to the ends of the queues.

Spark's progress contains both ends for each micro-batch; the store adds bytes and latency.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from os import PathLike
from typing import Any

from pyrocket import QueueOffsets, QueueRange
from pyrocket.errors import DataLossError, PyrocketError

from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.transport.interface import Bounds, BrokerSource, MessageSource
from pyspark_pyrocket.transport.targets import StorePlace, opened_source, target_at

_NO_BOUNDS = QueueOffsets(0, 0)


@dataclass(frozen=True, kw_only=True)
class BatchFacts:
    """The number, rows and duration of a micro-batch, from Spark's progress."""

    number: int
    rows: int
    duration_ms: int

    @classmethod
    def of(cls, progress: dict[str, Any]) -> "BatchFacts":
        """Return the facts of a progress, parsed from its JSON."""
        duration = progress.get("durationMs", {}).get("triggerExecution", 0)
        return cls(number=progress["batchId"], rows=progress["numInputRows"], duration_ms=duration)


@dataclass(frozen=True, kw_only=True)
class TopicLag:
    """The lag of a query in one topic of a broker.

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
    progress: Mapping[str, Any], store: StorePlace | MessageSource | None = None
) -> list[TopicLag]:
    """Return the lag in each topic of each broker of one source of a query; [] for other sources.

    progress: an entry of `sources` in Spark's progress. store: the directory that the query reads,
        the options of its read, or a source that stays open between calls. Without a store, or if
        the query reads another one, lags are in messages only. Raises StoreNotFoundError.

        [lag_of(source, "/data/store") for source in json.loads(query.lastProgress.json)["sources"]]
    """
    if isinstance(store, str | PathLike | Mapping):
        with opened_source(target_at(store)) as opened:
            return lag_of(progress, opened)
    end, latest = _offset(progress.get("endOffset")), _offset(progress.get("latestOffset"))
    if end is None or latest is None:
        return []
    sources = store.by_broker() if store is not None else {}
    ours = {
        broker: sources[broker]
        for broker, known in end.brokers.items()
        if broker in sources and sources[broker].identities()[broker].store == known.store
    }
    lost = Counter[tuple[str, str]]()
    for queue, count in end.lost.items():
        lost[queue.topic, queue.broker] += count
    unread: dict[tuple[str, str], list[QueueRange]] = {}
    for queue, at in latest.offsets.items():
        # A queue that is new to the query is read from its first message; 0 if that is unknown.
        new = QueueRange(queue, end.offsets.get(queue, 0), at)
        unread.setdefault((queue.topic, queue.broker), []).append(new)
    # Topics that do not exist yet, and deleted topics of which messages were lost.
    for place in (*product(latest.waiting, latest.brokers), *lost):
        unread.setdefault(place, [])
    return [
        _topic_lag(
            topic,
            broker,
            ranges,
            ours.get(broker),
            measured=broker in end.topic_ids.get(topic, {}),
            lost=lost[topic, broker],
        )
        for (topic, broker), ranges in unread.items()
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
    source: BrokerSource | None,
    *,
    measured: bool,
    lost: int,
) -> TopicLag:
    bounds = _bounds(source, topic)
    left = [
        QueueRange(
            part.queue, max(part.start, bounds.get(part.queue, _NO_BOUNDS).minimum), part.end
        )
        for part in unread
    ]
    left = [part for part in left if part.rows > 0]
    return TopicLag(
        topic=topic,
        broker=broker,
        messages=sum(part.rows for part in left),
        bytes_left=sum(span.bytes for span in source.sizes(left)) if source and measured else None,
        latency_ms=_latency(source, left) if source and measured else None,
        lost=lost,
    )


def _bounds(source: BrokerSource | None, topic: str) -> Bounds:
    if source is None:
        return {}
    try:
        return source.bounds([topic])
    except PyrocketError:
        return {}


def _latency(source: BrokerSource, left: list[QueueRange]) -> int:
    oldest = min(_first_stored(source, left), default=None)
    return 0 if oldest is None else max(0, source.now_ms() - oldest)


def _first_stored(source: BrokerSource, left: list[QueueRange]) -> Iterator[int]:
    for part in left:
        first = QueueRange(part.queue, part.start, part.start + 1)
        try:
            for piece in source.slices([first]):
                yield from piece.records.store_timestamp.tolist()
        except PyrocketError:  # Deleted after the micro-batch.
            continue
