"""The brokers of a cluster of Apache RocketMQ, as commands see them: topics, groups, and lag.

Topics and groups are shown like those of a store: `plan_view` and `read_view` have the columns of
its views. A cluster is administered with its own tools, `mqadmin`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa

from pyrocket.errors import GroupNotFoundError
from pyrocket.metadata.groups import parse_configs
from pyrocket.remoting.calls import ResponseCode
from pyrocket.remoting.requests import (
    TopicOffset,
    group_settings,
    group_topics,
    members,
    topic_offsets,
)
from pyrocket.remoting.source import RocketMQSource
from pyrocket.values.admin import GroupConfig, LiveMember, TopicConfig
from pyrocket.values.message import QueueRange
from pyrocket.views.tables import Row, kind_of, view_table

_SYSTEM_GROUPS = (
    *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"),
    *("CID_RMQ_SYS_", "CID_SYS_RMQ_", "CID_ONS"),
)
"""The beginnings of the names of the groups that every broker has. Source: `MixAll`."""


class BrokerOfRocketMQ(RocketMQSource):
    """One broker as the source of a command."""

    def topics(self) -> dict[str, TopicConfig]:
        """Return all topics of the broker."""
        return dict(sorted(self._configs(self.cluster.topic_names(self.seconds)).items()))

    def plan_view(
        self, view: str, *, topics: Collection[str] = (), group: str = ""
    ) -> list[pa.Table]:
        """Return the rows of the view `topics` or `groups` as its only part."""
        rows = self._topic_rows(topics) if view == "topics" else self._group_rows(group)
        return [view_table(view, rows)]

    def read_view(
        self, part: pa.Table, columns: Sequence[str], *, verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        yield from part.to_batches()

    def _topic_rows(self, names: Collection[str]) -> Iterator[Row]:
        """Yield the rows of topics, by default all; those that the user may not see are left out.

        Sizes and the times of first messages are unknown: they would cost pulls for each queue.
        """
        configs = self._configs(names) if names else self.topics()
        refusals = ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION
        answers = self._ask([topic_offsets(topic, also=refusals) for topic in configs])
        for config, queues in zip(configs.values(), answers, strict=True):
            if queues is not None:
                yield _topic_row(config, queues)

    def _group_rows(self, group: str) -> Iterator[Row]:
        """Yield the rows of a group, or of all groups. Raises GroupNotFoundError."""
        groups = RocketMQGroups(self)
        names = [groups.get(group).name] if group else [*groups.all()]
        topics = self._ask([group_topics(name) for name in names])
        for name, consumed in zip(names, topics, strict=True):
            yield from self._rows_of_group(name, consumed)

    def _rows_of_group(self, group: str, topics: Collection[str]) -> Iterator[Row]:
        bounds, offsets = self.bounds(topics), self.committed(group, topics)
        left = [
            QueueRange(queue, min(max(at, has.minimum), has.maximum), has.maximum)
            for queue, at in offsets.items()
            for has in [bounds[queue]]
        ]
        behind = [(part.queue, part.start) for part in left if part.rows]
        next_of = dict(zip(behind, self._records_at(behind), strict=True))
        for part, span in zip(left, self.sizes(left), strict=True):
            queue, following = part.queue, next_of.get((part.queue, part.start))
            yield {
                "consumerGroup": group,
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "committedOffset": offsets[queue],
                "minOffset": bounds[queue].minimum,
                "maxOffset": bounds[queue].maximum,
                "lag": part.rows,
                "lagBytes": span.bytes,
                "nextStoreTimestamp": following and following.store_timestamp * 1000,
            }

    def close(self) -> None:
        """Close the connections to the cluster."""
        self.cluster.close()


@dataclass(frozen=True)
class RocketMQGroups:
    """The consumer groups of a broker."""

    source: BrokerOfRocketMQ

    def all(self) -> dict[str, GroupConfig]:
        """Return the groups of users by name."""
        known = self._known().items()
        return {name: config for name, config in known if not name.startswith(_SYSTEM_GROUPS)}

    def get(self, name: str) -> GroupConfig:
        """Return a group. Raises GroupNotFoundError."""
        known = self._known()
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise GroupNotFoundError(
                f"the broker {self.source.broker} has no consumer group {name!r}.",
                remedy=f"Did you mean {near[0]!r}?" if near else "See `pyrocket group list`.",
            )
        return known[name]

    def members(self, name: str) -> list[LiveMember]:
        """Return the live members of a group; their subscriptions are not compared."""
        (ids,) = self.source._ask([members(name)])
        return [LiveMember(client_id, differs=False) for client_id in ids]

    def _known(self) -> dict[str, GroupConfig]:
        (table,) = self.source._ask([group_settings()])
        return dict(sorted(parse_configs(table).items()))


def _topic_row(config: TopicConfig, queues: Mapping[int, TopicOffset]) -> Row:
    last_ms = max((offsets.last_update_ms for offsets in queues.values()), default=0)
    return {
        "topic": config.name,
        "kind": kind_of(config.name),
        "perm": config.perm,
        "readQueues": config.read_queues,
        "writeQueues": config.write_queues,
        "messages": sum(offsets.maximum - offsets.minimum for offsets in queues.values()),
        "lastStoreTimestamp": last_ms * 1000 or None,
        "queues": [
            {
                "queueId": queue_id,
                "minOffset": offsets.minimum,
                "maxOffset": offsets.maximum,
                "lastStoreTimestamp": offsets.last_update_ms * 1000 or None,
            }
            for queue_id, offsets in queues.items()
        ],
    }
