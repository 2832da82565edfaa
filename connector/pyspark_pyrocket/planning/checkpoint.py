"""What Spark keeps in a query's checkpoint: how far each queue has been read. Pure.

    {"epoch": 1,
     "from": {"t": {"broker-a": {"4": 0}}},
     "offsets": {"t": {"broker-a": {"0": 23, "4": 7}}},
     "store": "6f1c...",
     "topics": {"t": "b1d0..."},
     "version": 1}

offsets: the next offset of each queue, the first one *not* yet read.
from: where queues begin that the batch's start offset does not have. The first batch of a query
    has all of them here, because Spark asks for the initial offset again when it replays.
store, topics: which directory and which topics these offsets count in; "" is unknown, as in a
    directory that only Java has written.
epoch: the log's epoch, to notice that a recovery has cut what was read.
initial: true in an offset that no batch has ended at; such an end reads nothing.
lost: how many messages of a queue were gone before the query came to them, since it began.

Spark compares the *text*: keys are sorted and nothing changes while nothing is new.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyrocket.errors import DataLossError

from pyspark_pyrocket.options.offsets import QueueNumbers

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class StreamOffset:
    """A position in all queues of a query; see the module for the fields."""

    store: str
    epoch: int
    broker: str
    offsets: QueueNumbers
    topic_ids: Mapping[str, str]
    first: QueueNumbers = field(default_factory=dict)
    initial: bool = False
    lost: QueueNumbers = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain, sorted values: equal offsets give equal text."""
        value = {
            "epoch": self.epoch,
            "from": _with_broker(self.first, self.broker),
            "initial": True,
            "lost": _with_broker(self.lost, self.broker),
            "offsets": _with_broker(self.offsets, self.broker),
            "store": self.store,
            "topics": dict(sorted(self.topic_ids.items())),
            "version": _VERSION,
        }
        if not self.first:
            del value["from"]
        if not self.initial:
            del value["initial"]
        if not self.lost:
            del value["lost"]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """Read what `to_json` wrote."""
        if value.get("version") != _VERSION:
            raise DataLossError(
                f"The checkpoint's offsets have version {value.get('version')!r}.",
                remedy=f"This pyrocket reads version {_VERSION}: "
                "use the release that wrote them, or a new checkpoint.",
                code="CHECKPOINT_VERSION",
            )
        try:
            brokers, offsets = _without_broker(value["offsets"])
            return cls(
                store=value["store"],
                epoch=value["epoch"],
                broker=brokers,
                offsets=offsets,
                topic_ids=value["topics"],
                first=_without_broker(value.get("from", {}))[1],
                initial=value.get("initial", False),
                lost=_without_broker(value.get("lost", {}))[1],
            )
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            raise DataLossError(
                f"The checkpoint's offsets are damaged ({error!r}): {value}",
                remedy="Start the query with a new checkpoint.",
                code="CHECKPOINT_DAMAGED",
            ) from error

    def begin(self, topic: str, queue: int, start: "StreamOffset") -> int | None:
        """Return where a batch that ends here begins in a queue, given its start offset."""
        begin = self.first.get(topic, {}).get(queue)
        return start.offsets.get(topic, {}).get(queue) if begin is None else begin


def _with_broker(numbers: QueueNumbers, broker: str) -> dict[str, dict[str, dict[str, int]]]:
    return {
        topic: {broker: {str(queue): int(offset) for queue, offset in sorted(queues.items())}}
        for topic, queues in sorted(numbers.items())
    }


def _without_broker(value: Mapping[str, Mapping[str, Any]]) -> tuple[str, QueueNumbers]:
    brokers = {broker for by_broker in value.values() for broker in by_broker}
    if len(brokers) > 1:
        raise ValueError(f"more than one broker: {sorted(brokers)}")
    broker = next(iter(brokers), "")
    return broker, {
        topic: {int(queue): int(offset) for queue, offset in by_broker[broker].items()}
        for topic, by_broker in value.items()
    }
