"""The brokers of a cluster of Apache RocketMQ, as commands see them: topics, groups, and lag.

Topics and groups are shown like those of a store: `plan_view` and `read_view` have the columns of
its views. A cluster is administered with its own tools, `mqadmin`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from difflib import get_close_matches
from typing import Any

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
from pyrocket.views.tables import kind_of

_SYSTEM_GROUPS = (
    *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"),
    *("CID_RMQ_SYS_", "CID_SYS_RMQ_", "CID_ONS"),
)
"""The beginnings of the names of the groups that every broker has. Source: `MixAll`."""

_Rows = list[dict[str, Any]]


class BrokerOfRocketMQ(RocketMQSource):
    """One broker as the source of a command."""

    def topics(self) -> dict[str, TopicConfig]:
        """Return all topics of the broker."""
        return dict(sorted(self._configs(self.cluster.topic_names(self.seconds)).items()))

    def plan_view(self, view: str, *, topics: Collection[str] = (), group: str = "") -> list[_Rows]:
        """Return the rows of the view `topics` or `groups` as its only part."""
        return [self._topic_rows(topics) if view == "topics" else self._group_rows(group)]

    def read_view(
        self, part: _Rows, columns: Sequence[str], *, verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        if part:
            yield pa.RecordBatch.from_pylist(part)

    def _topic_rows(self, names: Collection[str]) -> _Rows:
        """Return the rows of topics, by default all; those that the user may not see are left out.

        Sizes and the times of first messages are unknown: they would cost pulls for each queue.
        """
        configs = self._configs(names) if names else self.topics()
        refusals = ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION
        answers = self._ask([topic_offsets(topic, also=refusals) for topic in configs])
        both = zip(configs.values(), answers, strict=True)
        return [_topic_row(config, queues) for config, queues in both if queues is not None]

    def _group_rows(self, group: str) -> _Rows:
        """Return the rows of a group, or of all groups. Raises GroupNotFoundError."""
        groups = RocketMQGroups(self)
        names = [groups.get(group).name] if group else [*groups.all()]
        topics = self._ask([group_topics(name) for name in names])
        return [
            row
            for name, consumed in zip(names, topics, strict=True)
            for row in self._rows_of_group(name, consumed)
        ]

    def _rows_of_group(self, group: str, topics: Collection[str]) -> _Rows:
        bounds, offsets = self.bounds(topics), self.committed(group, topics)
        left = {
            queue: QueueRange(queue, min(max(at, has.minimum), has.maximum), has.maximum)
            for queue, at in offsets.items()
            for has in [bounds[queue]]
        }
        sizes = self.sizes([*left.values()])
        behind = [(queue, part.start) for queue, part in left.items() if part.rows]
        records = self._records_at(behind)
        times = {
            queue: record.store_timestamp
            for (queue, _), record in zip(behind, records, strict=True)
            if record
        }
        return [
            {
                "consumerGroup": group,
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "committedOffset": offsets[queue],
                "minOffset": bounds[queue].minimum,
                "maxOffset": bounds[queue].maximum,
                "lag": part.rows,
                "lagBytes": span.bytes,
                "nextStoreTimestamp": _time(times.get(queue, 0)),
            }
            for (queue, part), span in zip(left.items(), sizes, strict=True)
        ]

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


def _topic_row(config: TopicConfig, queues: Mapping[int, TopicOffset]) -> dict[str, Any]:
    unknown = {"bytes": None, "firstStoreTimestamp": None}
    last_ms = max((offsets.last_update_ms for offsets in queues.values()), default=0)
    return {
        "topic": config.name,
        "kind": kind_of(config.name),
        "perm": config.perm,
        "readQueues": config.read_queues,
        "writeQueues": config.write_queues,
        "messages": sum(offsets.maximum - offsets.minimum for offsets in queues.values()),
        "lastStoreTimestamp": _time(last_ms),
        "queues": [
            {
                "queueId": queue_id,
                "minOffset": offsets.minimum,
                "maxOffset": offsets.maximum,
                "lastStoreTimestamp": _time(offsets.last_update_ms),
            }
            | unknown
            for queue_id, offsets in queues.items()
        ],
    } | unknown


def _time(stored_ms: int) -> datetime | None:
    return datetime.fromtimestamp(stored_ms / 1000, timezone.utc) if stored_ms else None
