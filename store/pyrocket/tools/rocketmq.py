"""The brokers of a cluster of Apache RocketMQ, as commands see them: topics, groups, and lag.

They are shown in the columns of the views of a store; `mqadmin` administers them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain

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
from pyrocket.views.tables import ViewRow, kind_of, view_table

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

    def _topic_rows(self, names: Collection[str]) -> Iterator[ViewRow]:
        """Return the rows of topics, by default of all that the user may see.

        Sizes and the times of first messages are unknown: they would cost pulls for each queue.
        """
        configs = self._configs(names) if names else self.topics()
        refusals = () if names else (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION)
        answers = self._ask([topic_offsets(topic, also=refusals) for topic in configs])
        rows = zip(configs.values(), answers, strict=True)
        return (_topic_row(config, queues) for config, queues in rows if queues is not None)

    def _group_rows(self, group: str) -> Iterator[ViewRow]:
        """Return the rows of a group, or of all groups. Raises GroupNotFoundError."""
        groups = RocketMQGroups(self)
        names = [groups.get(group).name] if group else [*groups.all()]
        topics = self._ask([group_topics(name) for name in names])
        return chain.from_iterable(map(self._rows_of_group, names, topics))

    def _rows_of_group(self, group: str, topics: Collection[str]) -> Iterator[ViewRow]:
        bounds, offsets = self.bounds(topics), self.committed(group, topics)
        left = [  # A queue without an offset is consumed from its start, as mqadmin counts.
            QueueRange(queue, min(max(at, has.minimum), has.maximum), has.maximum)
            for queue, has in bounds.items()
            for at in [offsets.get(queue, 0)]
        ]
        places = [(part.queue, part.start) for part in left if part.rows]
        following = dict(zip((queue for queue, _ in places), self._records_at(places), strict=True))
        for part, span in zip(left, self.sizes(left), strict=True):
            queue, record = part.queue, following.get(part.queue)
            yield {
                "consumerGroup": group,
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "committedOffset": offsets.get(queue),
                "minOffset": bounds[queue].minimum,
                "maxOffset": bounds[queue].maximum,
                "lag": part.rows,
                "lagBytes": span.bytes,
                "nextStoreTimestamp": record and record.store_timestamp * 1000,
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
        groups = self._known().items()
        return {name: config for name, config in groups if not name.startswith(_SYSTEM_GROUPS)}

    def get(self, name: str) -> GroupConfig:
        """Return a group. Raises GroupNotFoundError."""
        known = self._known()
        if name in known:
            return known[name]
        near = get_close_matches(name, known, 1)
        remedy = f"Did you mean {near[0]!r}?" if near else "See `pyrocket group list`."
        message = f"the broker {self.source.broker} has no consumer group {name!r}."
        raise GroupNotFoundError(message, remedy=remedy)

    def members(self, name: str) -> list[LiveMember]:
        """Return the live members of a group; their subscriptions are not compared."""
        (ids,) = self.source._ask([members(name)])
        return [LiveMember(client_id, differs=False) for client_id in ids]

    def _known(self) -> dict[str, GroupConfig]:
        return dict(sorted(parse_configs(*self.source._ask([group_settings()])).items()))


def _topic_row(config: TopicConfig, queues: Mapping[int, TopicOffset]) -> ViewRow:
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
