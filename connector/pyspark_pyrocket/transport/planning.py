"""The view of a source for one planning call of Spark: everything is read once, at one moment.

A view is made for each call and is never used for a later one. Over a network, most plans cost one
round trip, `BrokerSource.plan`.
"""

from collections.abc import Collection, Mapping
from typing import Any, cast

from pyrocket import LogMark, MessageQueue, QueueOffsets, ReadPlan, SourceIdentity, TopicConfig

from pyspark_pyrocket.transport.cluster_source import ClusterSource
from pyspark_pyrocket.transport.interface import BrokerSource, MessageSource

_Log = tuple[str, str, int]
"""A broker's process, its store, and the epoch of the log."""


class Planning:
    """Makes the views for the planning calls of one query.

    It remembers only which brokers have confirmed that their log has the query's mark. That remains
    true until the broker is restarted or the epoch changes, so the mark is not compared again.
    """

    def __init__(self) -> None:
        self._confirmed: dict[str, _Log] = {}

    def view(self, source: MessageSource, topics: Collection[str]) -> MessageSource:
        """Return the view of a source in which these topics, and perhaps others, are planned."""

        def view_of(name: str, broker_source: BrokerSource) -> BrokerSource:
            return cast("BrokerSource", _BrokerView(name, broker_source, topics, self._confirmed))

        sources = source.by_broker()
        views = {name: view_of(name, broker_source) for name, broker_source in sources.items()}
        if [*sources.values()] == [source]:
            return next(iter(views.values()))
        return ClusterSource(
            source.target, views, lambda name: view_of(name, source.by_broker([name])[name])
        )


class _BrokerView:
    """A view of one broker's source, to which it delegates all other calls."""

    def __init__(
        self, name: str, source: BrokerSource, topics: Collection[str], confirmed: dict[str, _Log]
    ) -> None:
        self._name, self._source, self._planned = name, source, topics
        self._confirmed = confirmed
        self._read: ReadPlan | None = None
        self._topics: dict[str, TopicConfig] = {}
        self._bounds: dict[MessageQueue, QueueOffsets] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def _ask(self) -> ReadPlan:
        """Return the plan, which the first call reads."""
        # Not a cached_property: before Python 3.12, all brokers would share its lock.
        if self._read is None:
            self._read = plan = self._source.plan(self._planned)
            self._topics = {topic.name: topic for topic in plan.topics}
            self._bounds |= plan.bounds
        return self._read

    def by_broker(self, expected: Collection[str] = ()) -> "dict[str, _BrokerView]":
        return {self._name: self}

    def identities(self) -> Mapping[str, SourceIdentity]:
        return self._ask().identities

    def topics(self) -> Mapping[str, TopicConfig]:
        self._ask()
        return self._topics

    def bounds(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the range of each read queue of the topics, in the order of the topics."""
        self._ask()
        known = {queue.topic for queue in self._bounds}
        if missing := [topic for topic in topics if topic not in known]:
            self._bounds |= self._source.bounds(missing)
        order = {topic: at for at, topic in enumerate(topics)}
        asked = [item for item in self._bounds.items() if item[0].topic in order]
        return dict(sorted(asked, key=lambda item: order[item[0].topic]))

    def queue_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, QueueOffsets]:
        self._ask()
        known = self._bounds
        missing = [queue for queue in queues if queue not in known]
        others = self._source.queue_bounds(missing) if missing else {}
        return {queue: known[queue] if queue in known else others[queue] for queue in queues}

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Return the queues that were truncated: none while the epoch is the same."""
        if epochs.get(self._name) == self._ask().epoch:
            return {}
        return self._source.truncations(epochs, queues)

    def holds(self, mark: LogMark) -> bool | None:
        """Return whether the log has the message; asked again only after a restart or an epoch."""
        if self._is_confirmed():
            return True
        held = self._source.holds(mark)
        if held:
            plan = self._ask()
            self._confirmed[self._name] = plan.run, plan.store, plan.epoch
        return held

    def refilled(
        self, offsets: Mapping[MessageQueue, int], mark: LogMark
    ) -> Mapping[MessageQueue, int]:
        """Return the queues that were filled again; asked as `holds`, or if one is short."""
        ask, ends = getattr(self._source, "refilled", None), self._ask().bounds
        is_short = any(queue in ends and at > ends[queue].maximum for queue, at in offsets.items())
        return ask(offsets, mark) if ask and (is_short or not self._is_confirmed()) else {}

    def _is_confirmed(self) -> bool:
        plan = self._ask()
        log = plan.run, plan.store, plan.epoch
        return bool(plan.run) and self._confirmed.get(self._name) == log
