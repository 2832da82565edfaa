"""The offset in a query's checkpoint: the progress of the query in each queue. Pure.

    {"brokers": {"broker-a": {"epoch": 1, "mark": {"headerCrc": 912, "logOffset": 73400,
                                                   "storeTimestamp": 1767225600000},
                              "store": "6f1c..."}},
     "from": {"t": {"broker-a": {"4": 0}}},
     "offsets": {"t": {"broker-a": {"0": 23, "4": 7}}},
     "topics": {"t": {"broker-a": "b1d0..."}},
     "version": 2}

offsets: the next offset of each queue, the first one *not* yet read. A topic that does not exist
yet has no queues. from: where this batch starts in queues that its start offset lacks, and in
queues that continue elsewhere after a loss. For the first batch of a query these are all queues,
because Spark requests the initial offset again on a replay. brokers, topics: the scope of these
offsets: the store of each broker (`SourceIdentity`) and the ids of its topics; "" is unknown, as in
a directory that only brokers have written. initial: true in an offset at which no batch has ended;
a batch that ends there reads nothing. lost: the number of messages of each queue that were lost
before the query read them, over all its runs.

Version 1 had "store" and "epoch" beside "offsets", one id per topic, and no mark. It can be read,
but is no longer written. There is one broker, because a directory belongs to one broker.

Spark compares the *text* of offsets: keys are sorted, and the text changes only with new messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyrocket import LogMark, MessageQueue, SourceIdentity
from pyrocket.errors import DataLossError

from pyspark_pyrocket.source.offsets import Offsets

_VERSION = 2
_READ = (1, _VERSION)


@dataclass(frozen=True, kw_only=True)
class StreamOffset:
    """A position in all queues of a query; see the module for the fields.

    Attributes:
        waiting: The requested topics that have no queues yet.
    """

    broker: str
    source: SourceIdentity
    offsets: Offsets
    topic_ids: Mapping[str, str]
    waiting: tuple[str, ...] = ()
    first: Offsets = field(default_factory=Offsets)
    initial: bool = False
    lost: Offsets = field(default_factory=Offsets)

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics of the query, with queues or without."""
        return (*self.offsets.topics, *self.waiting)

    def to_json(self) -> dict[str, Any]:
        """Return plain, sorted values: equal offsets give equal text."""
        ids = {topic: {self.broker: known} for topic, known in sorted(self.topic_ids.items())}
        value: dict[str, Any] = {"brokers": {self.broker: _identity_to_json(self.source)}}
        if self.first:
            value["from"] = self.first.to_json()
        if self.initial:
            value["initial"] = True
        if self.lost:
            value["lost"] = self.lost.to_json()
        waiting: dict[str, Any] = {topic: {self.broker: {}} for topic in self.waiting}
        value["offsets"] = dict(sorted((waiting | self.offsets.to_json()).items()))
        return {**value, "topics": ids, "version": _VERSION}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """Return the offset from a value that `to_json` of this or an earlier release returned."""
        _check_version(value)
        try:
            broker, source, ids = _identity(value)
            return cls(
                broker=broker,
                source=source,
                offsets=_of_broker(value["offsets"], broker),
                waiting=tuple(topic for topic, at in value["offsets"].items() if not at[broker]),
                topic_ids=ids,
                first=_of_broker(value.get("from", {}), broker),
                initial=value.get("initial", False),
                lost=_of_broker(value.get("lost", {}), broker),
            )
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            raise DataLossError(
                f"The checkpoint's offsets are corrupt ({error!r}): {value}",
                remedy="Start the query with a new checkpoint.",
                code="CHECKPOINT_DAMAGED",
            ) from error

    def begin(self, queue: MessageQueue, start: "StreamOffset") -> int | None:
        """Return where the batch from `start` to this offset begins in a queue; None if unknown."""
        begin = self.first.get(queue)
        return start.offsets.get(queue) if begin is None else begin


def is_ours(value: object) -> bool:
    """Return whether a source's JSON in a checkpoint is an offset of pyrocket's source."""
    return isinstance(value, dict) and any(
        {"offsets", "version", own} <= value.keys() for own in ("store", "brokers")
    )


def _check_version(value: Mapping[str, Any]) -> None:
    """Raise DataLossError (CHECKPOINT_VERSION) if only another release can read the offset."""
    brokers = value.get("brokers")
    several = isinstance(brokers, Mapping) and len(brokers) > 1
    if value.get("version") in _READ and not several:
        return
    of = f"are of {len(brokers or ())} brokers" if several else ""
    raise DataLossError(
        f"The checkpoint's offsets {of or 'have version {!r}'.format(value.get('version'))}.",
        remedy=f"This release supports one broker and versions up to {_VERSION}: "
        "use the release that wrote them, or a new checkpoint.",
        code="CHECKPOINT_VERSION",
    )


def _identity(value: Mapping[str, Any]) -> tuple[str, SourceIdentity, dict[str, str]]:
    """Return the broker, its store's identity, and the ids of its topics."""
    if value["version"] == 1:
        brokers = {broker for by_broker in value["offsets"].values() for broker in by_broker}
        (broker,) = brokers or {""}
        source = SourceIdentity(store=value["store"], epoch=value["epoch"])
        return broker, source, dict(value["topics"])
    ((broker, known),) = value["brokers"].items()
    ids = {topic: by_broker[broker] for topic, by_broker in value["topics"].items()}
    return broker, _identity_from_json(known), ids


def _identity_to_json(identity: SourceIdentity) -> dict[str, Any]:
    value: dict[str, Any] = {"epoch": identity.epoch}
    if identity.mark is not None:
        value["mark"] = {
            "headerCrc": identity.mark.header_crc,
            "logOffset": identity.mark.log_offset,
            "storeTimestamp": identity.mark.store_timestamp,
        }
    return {**value, "store": identity.store}


def _identity_from_json(value: Mapping[str, Any]) -> SourceIdentity:
    mark = None
    if "mark" in value:
        names = ("logOffset", "storeTimestamp", "headerCrc")
        mark = LogMark(*(int(value["mark"][name]) for name in names))
    return SourceIdentity(store=value["store"], epoch=value["epoch"], mark=mark)


def _of_broker(value: Mapping[str, Mapping[str, Any]], broker: str) -> Offsets:
    """Return the numbers of the only broker. Raises ValueError if there is another broker."""
    for by_broker in value.values():
        if set(by_broker) != {broker}:
            raise ValueError(f"not of the broker {broker!r}: {sorted(by_broker)}")
    return Offsets.from_json(value)
