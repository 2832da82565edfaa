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

Version 1 had "store" and "epoch" beside "offsets", one id per topic, one broker, and no mark. It
can be read, but is no longer written.

Spark compares the *text* of offsets: keys are sorted, and the text changes only with new messages.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
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
        topic_ids: Topic → broker → the id of the topic at this broker.
        waiting: The requested topics that have no queues yet.
    """

    brokers: Mapping[str, SourceIdentity]
    offsets: Offsets
    topic_ids: Mapping[str, Mapping[str, str]]
    waiting: tuple[str, ...] = ()
    first: Offsets = field(default_factory=Offsets)
    initial: bool = False
    lost: Offsets = field(default_factory=Offsets)

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics of the query, with queues or without."""
        return (*self.offsets.topics, *self.waiting)

    @property
    def broker_names(self) -> tuple[str, ...]:
        """The names of the brokers; version 1 has none if the query had no queues."""
        return tuple(filter(None, self.brokers))

    def mark(self, broker: str) -> LogMark | None:
        """Return the mark of a broker; None if there is none."""
        known = self.brokers.get(broker)
        return known.mark if known else None

    def without(self, brokers: Collection[str]) -> "StreamOffset":
        """Return the offset in the queues of all other brokers."""
        kept = {name: known for name, known in self.brokers.items() if name not in brokers}

        def of(offsets: Offsets) -> Offsets:
            return Offsets({queue: at for queue, at in offsets.items() if queue.broker in kept})

        ids = {
            topic: {name: topic_id for name, topic_id in known.items() if name in kept}
            for topic, known in self.topic_ids.items()
        }
        return replace(
            self,
            brokers=kept,
            offsets=of(self.offsets),
            topic_ids={topic: known for topic, known in ids.items() if known},
            first=of(self.first),
            lost=of(self.lost),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain, sorted values: equal offsets give equal text."""
        brokers = dict(sorted(self.brokers.items()))
        value: dict[str, Any] = {
            "brokers": {name: _identity_to_json(known) for name, known in brokers.items()}
        }
        if self.first:
            value["from"] = self.first.to_json()
        if self.initial:
            value["initial"] = True
        if self.lost:
            value["lost"] = self.lost.to_json()
        waiting: dict[str, Any] = {topic: {name: {} for name in brokers} for topic in self.waiting}
        value["offsets"] = dict(sorted((waiting | self.offsets.to_json()).items()))
        ids = {
            topic: dict(sorted(known.items())) for topic, known in sorted(self.topic_ids.items())
        }
        return {**value, "topics": ids, "version": _VERSION}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """Return the offset from a value that `to_json` of this or an earlier release returned."""
        _check_version(value)
        try:
            brokers, ids = _scope(value)
            return cls(
                brokers=brokers,
                offsets=_of_brokers(value["offsets"], brokers),
                waiting=tuple(
                    topic for topic, known in value["offsets"].items() if not any(known.values())
                ),
                topic_ids=ids,
                first=_of_brokers(value.get("from", {}), brokers),
                initial=value.get("initial", False),
                lost=_of_brokers(value.get("lost", {}), brokers),
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
    if value.get("version") not in _READ:
        raise DataLossError(
            f"The checkpoint's offsets have version {value.get('version')!r}.",
            remedy=f"This release supports versions up to {_VERSION}: use the release that wrote "
            "them, or a new checkpoint.",
            code="CHECKPOINT_VERSION",
        )


def _scope(value: Mapping[str, Any]) -> tuple[dict[str, SourceIdentity], dict[str, dict[str, str]]]:
    """Return the identities of the brokers' stores, and the ids of their topics."""
    if value["version"] == 1:
        names = {name for by_broker in value["offsets"].values() for name in by_broker}
        (broker,) = names or {""}
        source = SourceIdentity(store=value["store"], epoch=value["epoch"])
        return {broker: source}, {
            topic: {broker: known} for topic, known in value["topics"].items()
        }
    if not value["brokers"]:
        raise ValueError("there is no broker")
    brokers = {name: _identity_from_json(known) for name, known in value["brokers"].items()}
    ids = {topic: dict(by_broker.items()) for topic, by_broker in value["topics"].items()}
    _check_brokers(ids, brokers)
    return brokers, ids


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


def _of_brokers(
    value: Mapping[str, Mapping[str, Mapping[str, Any]]], brokers: Mapping[str, object]
) -> Offsets:
    """Return the numbers. Raises ValueError if one is of another broker."""
    _check_brokers(value, brokers)
    return Offsets.from_json(value)


def _check_brokers(
    value: Mapping[str, Mapping[str, object]], brokers: Mapping[str, object]
) -> None:
    """Raise ValueError unless every topic has values of some of these brokers, and no others."""
    for topic, by_broker in value.items():
        if not by_broker or not set(by_broker) <= set(brokers):
            raise ValueError(
                f"{topic!r} has the brokers {sorted(by_broker)}, not {sorted(brokers)}"
            )
