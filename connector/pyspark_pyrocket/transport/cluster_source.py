"""The queues of several brokers as one source: each call is delegated to the queues' brokers."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from pyrocket import ByteSpan, MessageQueue, QueueOffsets, QueueRange, SourceIdentity, TopicConfig

from pyspark_pyrocket.transport.interface import BrokerSource, Target

_Asked = TypeVar("_Asked")
_Item = TypeVar("_Item")
_Value = TypeVar("_Value")

Find = Callable[[str], BrokerSource]
"""Returns the source of a broker by name, waiting until it can be found. Raises TransportError."""


def side_by_side(
    ask: Callable[[str, _Asked], _Value], asked: Mapping[str, _Asked]
) -> dict[str, _Value]:
    """Call `ask` for each broker, at the same time: this takes as long as the slowest broker."""
    if len(asked) < 2:
        return {name: ask(name, value) for name, value in asked.items()}
    with ThreadPoolExecutor(len(asked), "pyrocket-brokers") as pool:
        return dict(zip(asked, pool.map(ask, asked, asked.values()), strict=True))


class ClusterSource:
    """Reads the topics of some brokers. Safe to share between threads.

    The brokers are those that were known when the source was opened, and those requested since, so
    that a broker that goes away between two calls causes an error, and not missing queues.
    """

    def __init__(self, target: Target, sources: Mapping[str, BrokerSource], find: Find) -> None:
        self.target, self._find = target, find
        self._sources = dict(sorted(sources.items()))

    def within(self, seconds: float, *, lock: float | None = None) -> "ClusterSource":
        def limited(source: BrokerSource) -> BrokerSource:
            return source.within(seconds, lock=lock)

        sources = {name: limited(source) for name, source in self._sources.items()}
        return type(self)(self.target, sources, lambda name: limited(self._find(name)))

    def by_broker(self, expected: Collection[str] = ()) -> Mapping[str, BrokerSource]:
        """Return the source of each broker; wait for `expected` brokers that are missing."""
        missing = set(expected).difference(self._sources)
        if missing:
            sources = {name: self._find(name) for name in sorted(missing)}
            self._sources = dict(sorted((self._sources | sources).items()))
        return self._sources

    def identities(self) -> dict[str, SourceIdentity]:
        return _merged(self._of_each(lambda source: source.identities()))

    def now_ms(self) -> int:
        """Return the latest time of the brokers."""
        return max(source.now_ms() for source in self._sources.values())

    def version(self) -> Hashable:
        return tuple((name, source.version()) for name, source in self._sources.items())

    def wait_for_change(self, version: Hashable, seconds: float) -> bool:
        """Wait for each broker in turn, so that a change at another one is seen a little later."""
        sources = self._sources
        seen = dict(version) if isinstance(version, tuple) else {}
        if seen.keys() != sources.keys():
            return True
        share = seconds / len(sources)
        waited = (source.wait_for_change(seen[name], share) for name, source in sources.items())
        return any(waited) or self.version() != version

    def is_recovering(self) -> bool:
        return any(source.is_recovering() for source in self._sources.values())

    def topics(self) -> dict[str, TopicConfig]:
        """Return every topic with its queues at all brokers.

        It has an id if only one broker has it. It can be read if this is permitted at all of them.
        """
        joined: dict[str, TopicConfig] = {}
        for topics in self._of_each(lambda source: source.topics()):
            for name, topic in topics.items():
                joined[name] = _joined(joined[name], topic) if name in joined else topic
        return joined

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError, which names the first broker's nearest."""
        topics = self.topics()
        if name in topics:
            return topics[name]
        return next(iter(self._sources.values())).topic(name)

    def bounds(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        return self._by_topic(topics, lambda source, own: source.bounds(own))

    def retired(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        return self._by_topic(topics, lambda source, own: source.retired(own))

    def queue_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, QueueOffsets]:
        return self._by_queue(queues, lambda source, own: source.queue_bounds(own))

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        return self._by_queue(
            times_ms,
            lambda source, own: source.offsets_at({queue: times_ms[queue] for queue in own}),
        )

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        return self._by_queue(queues, lambda source, own: source.truncations(epochs, own))

    def sizes(self, ranges: Sequence[QueueRange]) -> list[ByteSpan]:
        brokers = [part.queue.broker for part in ranges]
        return self._in_order(brokers, ranges, lambda source, own: source.sizes(own))

    def split_at_bytes(
        self, splits: Sequence[tuple[QueueRange, Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        brokers = [part.queue.broker for part, _ in splits]
        return self._in_order(brokers, splits, lambda source, own: source.split_at_bytes(own))

    def committed(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[MessageQueue, int]:
        return _merged(self._of_each(lambda source: source.committed(group, topics)))

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, backwards: bool = False
    ) -> dict[MessageQueue, int]:
        """Commit offsets at the brokers of their queues; without offsets, create the group at all.

        Not atomic: after an error, some brokers may have the new offsets.
        """
        if not offsets:
            return _merged(self._of_each(lambda source: source.commit(group, {})))
        return self._by_queue(
            offsets,
            lambda source, own: source.commit(
                group, {queue: offsets[queue] for queue in own}, backwards=backwards
            ),
        )

    def deliver_due(self) -> bool:
        """Deliver due messages at brokers that do not do so by themselves."""
        delivered = [source.deliver_due() for source in self._sources.values()]
        return any(delivered)

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    def _by_topic(
        self,
        topics: Collection[str],
        ask: Callable[[BrokerSource, list[str]], Mapping[MessageQueue, _Value]],
    ) -> dict[MessageQueue, _Value]:
        order = {topic: at for at, topic in enumerate(topics)}

        def of_existing(source: BrokerSource) -> Mapping[MessageQueue, _Value]:
            existing = source.topics()
            return ask(source, [topic for topic in order if topic in existing])

        values = _merged(self._of_each(of_existing))
        return dict(sorted(values.items(), key=lambda item: order[item[0].topic]))

    def _by_queue(
        self,
        queues: Collection[MessageQueue],
        ask: Callable[[BrokerSource, list[MessageQueue]], Mapping[MessageQueue, _Value]],
    ) -> dict[MessageQueue, _Value]:
        parts = self._of_their_brokers([queue.broker for queue in queues], queues, ask)
        values = _merged(parts.values())
        return {queue: values[queue] for queue in (*queues, *values) if queue in values}

    def _of_each(self, ask: Callable[[BrokerSource], _Value]) -> Collection[_Value]:
        return side_by_side(lambda _, source: ask(source), self._sources).values()

    def _in_order(
        self,
        brokers: Sequence[str],
        items: Sequence[_Item],
        ask: Callable[[BrokerSource, list[_Item]], Sequence[_Value]],
    ) -> list[_Value]:
        """Ask each broker for its items; return the values in the order of the items."""
        parts = self._of_their_brokers(brokers, items, ask)
        values = {broker: iter(part) for broker, part in parts.items()}
        return [next(values[broker]) for broker in brokers]

    def _of_their_brokers(
        self,
        brokers: Collection[str],
        items: Iterable[_Item],
        ask: Callable[[BrokerSource, list[_Item]], _Value],
    ) -> dict[str, _Value]:
        groups: dict[str, list[_Item]] = {}
        for broker, item in zip(brokers, items, strict=True):
            groups.setdefault(broker, []).append(item)
        sources = self.by_broker(groups.keys())
        return side_by_side(lambda name, group: ask(sources[name], group), groups)


def _joined(first: TopicConfig, second: TopicConfig) -> TopicConfig:
    return replace(
        first,
        read_queues=first.read_queues + second.read_queues,
        write_queues=first.write_queues + second.write_queues,
        perm=first.perm & second.perm,
        topic_id="",
    )


def _merged(parts: Iterable[Mapping[_Item, _Value]]) -> dict[_Item, _Value]:
    return {key: value for part in parts for key, value in part.items()}
