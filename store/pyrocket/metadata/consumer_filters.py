"""`config/consumerFilter.json`: the SQL subscriptions of consumer groups, in RocketMQ's form.

A subscription that its group has ended is dead, and is removed a day later. Subscriptions by tag
are not in the file. Source: `ConsumerFilterManager`, `ConsumerFilterData`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyrocket.clock import Clock
from pyrocket.disk.layout import Layout
from pyrocket.formats.bloom_filter import BITS, bit_positions
from pyrocket.metadata.json_table import Content, JsonTable

_TABLE, _OF_TOPIC = "filterDataByTopic", "groupFilterData"
_REMOVED_AFTER_MS = 24 * 3_600_000
SQL = "SQL92"


@dataclass(frozen=True)
class ConsumerFilter:
    """One subscription. born_ms: when it began; dead_ms: when it ended, or 0."""

    group: str
    topic: str
    expression: str
    kind: str = SQL
    born_ms: int = 0
    dead_ms: int = 0


class ConsumerFilters:
    """The subscriptions of one store. Each call reads the file."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self.table = JsonTable(layout, "consumerFilter", _parse, required=_TABLE)
        self._clock = clock

    def all(self) -> dict[tuple[str, str], ConsumerFilter]:
        """Return all subscriptions by (topic, group)."""
        return self.table.read()

    def replace(self, group: str, expressions: Mapping[str, str]) -> None:
        """Set the SQL subscriptions of a group, topic → expression; all others of the group end.

        The change is durable. Requires the write lock; the caller has checked the expressions.
        """
        now = self._clock()

        def edit(content: Content) -> bool:
            topics = content.setdefault(_TABLE, {})
            changes = [
                _set(topics.setdefault(topic, {_OF_TOPIC: {}, "topic": topic}), group, sql, now)
                for topic, sql in expressions.items()
            ]
            changes += [
                _end(of_topic[_OF_TOPIC], group, now)
                for topic, of_topic in topics.items()
                if topic not in expressions
            ]
            for topic in [name for name, of_topic in topics.items() if not of_topic[_OF_TOPIC]]:
                del topics[topic]
            return any(changes)

        self.table.change(edit)


def _set(of_topic: Content, group: str, expression: str, now: int) -> bool:
    known = of_topic[_OF_TOPIC].get(group)
    if known and known["expression"] == expression and not known.get("deadTime"):
        return False
    of_topic[_OF_TOPIC][group] = {
        "bloomFilterData": {"bitNum": BITS, "bitPos": bit_positions(group, of_topic["topic"])},
        "bornTime": now,
        "clientVersion": now,
        "consumerGroup": group,
        "dead": False,
        "deadTime": 0,
        "expression": expression,
        "expressionType": SQL,
        "topic": of_topic["topic"],
    }
    return True


def _end(groups: Content, group: str, now: int) -> bool:
    """End a subscription, or remove one that ended long ago."""
    known = groups.get(group)
    if known is None:
        return False
    if not known.get("deadTime"):
        known.update(dead=True, deadTime=now)
        return True
    if now - int(known["deadTime"]) < _REMOVED_AFTER_MS:
        return False
    del groups[group]
    return True


def _parse(content: Content) -> dict[tuple[str, str], ConsumerFilter]:
    return {
        (topic, group): ConsumerFilter(
            group,
            topic,
            str(entry["expression"]),
            str(entry.get("expressionType", SQL)),
            int(entry.get("bornTime", 0)),
            int(entry.get("deadTime", 0)),
        )
        for topic, of_topic in content.get(_TABLE, {}).items()
        for group, entry in of_topic.get(_OF_TOPIC, {}).items()
    }
