"""What Spark keeps in a query's checkpoint: how far each queue has been read. Pure.

    {"brokers": {"broker-a": {"epoch": 1, "mark": {"headerCrc": 912, "logOffset": 73400,
                                                   "storeTimestamp": 1767225600000},
                              "store": "6f1c..."}},
     "from": {"t": {"broker-a": {"4": 0}}},
     "offsets": {"t": {"broker-a": {"0": 23, "4": 7}}},
     "topics": {"t": {"broker-a": "b1d0..."}},
     "version": 2}

offsets: the next offset of each queue, the first one *not* yet read. A topic that is waited for has
    no queues.
from: where queues begin that the batch's start offset does not have. The first batch of a query
    has all of them here, because Spark asks for the initial offset again when it replays.
brokers, topics: what these offsets count in: for each broker which directory (`SourceIdentity`),
    and which topics; "" is unknown, as in a directory that only Java has written.
initial: true in an offset that no batch has ended at; such an end reads nothing.
lost: how many messages of a queue were gone before the query came to them, since it began.

Version 1 had "store" and "epoch" beside "offsets", one id a topic, and no mark. It is read, and
never written. There is one broker: a directory is one.

Spark compares the *text*: keys are sorted and nothing changes while nothing is new.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyrocket import LogMark, Store
from pyrocket.errors import DataLossError

from pyspark_pyrocket.options.positions import QueueNumbers

_VERSION = 2
_READ = (1, _VERSION)


@dataclass(frozen=True, kw_only=True)
class SourceIdentity:
    """What the offsets of one broker count in.

    store: its uuid. epoch: that of the log, to notice that a recovery has cut what was read.
    mark: the newest message before the offsets, to notice that the store was restored from an older
    copy; None if there is none, as in version 1.
    """

    store: str
    epoch: int
    mark: LogMark | None = None

    @classmethod
    def of(cls, store: Store) -> "SourceIdentity":
        """Return what a store is now, without a mark."""
        return cls(store=store.uuid, epoch=store.history.epoch)

    def to_json(self) -> dict[str, Any]:
        """Return plain, sorted values; the mark only where there is one."""
        value: dict[str, Any] = {"epoch": self.epoch, "store": self.store}
        if self.mark is not None:
            value["mark"] = {
                "headerCrc": self.mark.header_crc,
                "logOffset": self.mark.log_offset,
                "storeTimestamp": self.mark.store_timestamp,
            }
        return dict(sorted(value.items()))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SourceIdentity":
        """Read what `to_json` wrote."""
        mark = None
        if "mark" in value:
            names = ("logOffset", "storeTimestamp", "headerCrc")
            mark = LogMark(*(int(value["mark"][name]) for name in names))
        return cls(store=value["store"], epoch=value["epoch"], mark=mark)


@dataclass(frozen=True, kw_only=True)
class StreamOffset:
    """A position in all queues of a query; see the module for the fields."""

    broker: str
    source: SourceIdentity
    offsets: QueueNumbers
    topic_ids: Mapping[str, str]
    first: QueueNumbers = field(default_factory=dict)
    initial: bool = False
    lost: QueueNumbers = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain, sorted values: equal offsets give equal text."""
        ids = {topic: {self.broker: known} for topic, known in sorted(self.topic_ids.items())}
        value: dict[str, Any] = {"brokers": {self.broker: self.source.to_json()}}
        if self.first:
            value["from"] = _with_broker(self.first, self.broker)
        if self.initial:
            value["initial"] = True
        if self.lost:
            value["lost"] = _with_broker(self.lost, self.broker)
        value["offsets"] = _with_broker(self.offsets, self.broker)
        return {**value, "topics": ids, "version": _VERSION}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """Read what `to_json` wrote, in this release or an earlier one."""
        _check_version(value)
        try:
            broker, source, ids = _identity(value)
            return cls(
                broker=broker,
                source=source,
                offsets=_without_broker(value["offsets"], broker),
                topic_ids=ids,
                first=_without_broker(value.get("from", {}), broker),
                initial=value.get("initial", False),
                lost=_without_broker(value.get("lost", {}), broker),
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


def is_ours(value: object) -> bool:
    """Return whether a source's JSON in a checkpoint is an offset of ours, of any version."""
    return isinstance(value, dict) and any(
        {"offsets", "version", own} <= value.keys() for own in ("store", "brokers")
    )


def _check_version(value: Mapping[str, Any]) -> None:
    """Raise DataLossError (CHECKPOINT_VERSION) about what only another release can read."""
    brokers = value.get("brokers")
    several = isinstance(brokers, Mapping) and len(brokers) > 1
    if value.get("version") in _READ and not several:
        return
    of = f"are of {len(brokers or ())} brokers" if several else ""
    raise DataLossError(
        f"The checkpoint's offsets {of or 'have version {!r}'.format(value.get('version'))}.",
        remedy=f"This pyrocket reads one broker and versions up to {_VERSION}: "
        "use the release that wrote them, or a new checkpoint.",
        code="CHECKPOINT_VERSION",
    )


def _identity(value: Mapping[str, Any]) -> tuple[str, SourceIdentity, dict[str, str]]:
    """Return the broker, what its offsets count in, and the ids of the topics there."""
    if value["version"] == 1:
        brokers = {broker for by_broker in value["offsets"].values() for broker in by_broker}
        (broker,) = brokers or {""}
        source = SourceIdentity(store=value["store"], epoch=value["epoch"])
        return broker, source, dict(value["topics"])
    ((broker, known),) = value["brokers"].items()
    ids = {topic: by_broker[broker] for topic, by_broker in value["topics"].items()}
    return broker, SourceIdentity.from_json(known), ids


def _with_broker(numbers: QueueNumbers, broker: str) -> dict[str, dict[str, dict[str, int]]]:
    return {
        topic: {broker: {str(queue): int(offset) for queue, offset in sorted(queues.items())}}
        for topic, queues in sorted(numbers.items())
    }


def _without_broker(value: Mapping[str, Mapping[str, Any]], broker: str) -> QueueNumbers:
    """Return the numbers of the only broker. Raises ValueError if there are those of another."""
    found: QueueNumbers = {}
    for topic, by_broker in value.items():
        if by_broker.keys() - {broker}:
            raise ValueError(f"more than the broker {broker!r}: {sorted(by_broker)}")
        queues = by_broker[broker]
        found[topic] = {int(queue): int(offset) for queue, offset in queues.items()}
    return found
