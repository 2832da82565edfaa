"""Consumer groups: their settings and offsets, in RocketMQ's files.

`config/consumerOffset.json`: `offsetTable` maps `topic@group` to {queue id: next offset to
consume}. Source: `ConsumerOffsetManager`.

`config/subscriptionGroup.json`: the settings. A group is created by its first commit, with
RocketMQ's defaults; settings that only RocketMQ uses are preserved. Source:
`SubscriptionGroupManager`, `SubscriptionGroupConfig`.
"""

import re
from collections.abc import Callable, Mapping

from pyrocket.base.clock import Clock
from pyrocket.disk.layout import Layout
from pyrocket.errors import GroupNameError
from pyrocket.formats.fastjson import int_keys
from pyrocket.metadata.json_table import Content, JsonTable
from pyrocket.values.admin import DELAYS_MS, Backoff, GroupConfig

_TABLE, _TOPICS_OF_GROUPS = "offsetTable", "groupTopicMap"

OffsetsByQueue = dict[int, int]
"""Queue id → next offset to consume."""

_Key = tuple[str, str]
_Table = dict[str, OffsetsByQueue]


class GroupOffsets:
    """The offsets of all groups of one store. Each call reads the file."""

    def __init__(self, layout: Layout) -> None:
        self.table = JsonTable(layout, "consumerOffset", _parse, required=_TABLE)

    def all(self) -> dict[_Key, OffsetsByQueue]:
        """Return the offsets by (topic, group)."""
        known = self.table.read()
        return {key: known[text] for text in known if (key := _split(text))}

    def of(self, group: str, topic: str) -> OffsetsByQueue:
        """Return the offsets that a group has committed in a topic; empty if there are none."""
        return self.table.read().get(f"{topic}@{group}", {})

    def merge(
        self,
        group: str,
        topic: str,
        offsets: OffsetsByQueue,
        may_replace: Callable[[int, int, int], bool],
    ) -> OffsetsByQueue:
        """Commit offsets, durably; return all offsets of the group in the topic.

        `may_replace(queue_id, old, new)` decides whether an existing offset is replaced. The caller
        must hold the write lock.
        """
        after: OffsetsByQueue = {}

        def edit(table: _Table) -> bool:
            known = table.get(f"{topic}@{group}", {})
            fresh = {
                queue_id: offset
                for queue_id, offset in offsets.items()
                if queue_id not in known or may_replace(queue_id, known[queue_id], offset)
            }
            after.update(sorted({**known, **fresh}.items()))
            table[f"{topic}@{group}"] = after
            return after != known

        self._change(edit)
        return after

    def change_all(self, edit: Callable[[dict[_Key, OffsetsByQueue]], bool]) -> None:
        """Change the offsets of many groups and topics at once, durably.

        `edit` gets all offsets by (topic, group), may change them, and returns whether it has done
        so. The caller must hold the write lock.
        """

        def edit_table(table: _Table) -> bool:
            keys = {text: key for text in table if (key := _split(text))}
            known = {key: table[text] for text, key in keys.items()}
            if not edit(known):
                return False
            for text in keys:
                del table[text]
            table.update({f"{topic}@{group}": known[topic, group] for topic, group in known})
            return True

        self._change(edit_table)

    def truncate(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Lower offsets after the ends of queues, which a recovery has truncated, durably.

        Otherwise groups would skip messages that are stored there later. Requires the write lock.
        """

        def edit(known: dict[_Key, OffsetsByQueue]) -> bool:
            before = {key: dict(known[key]) for key in known}
            for (topic, _), offsets in known.items():
                for queue_id, offset in offsets.items():
                    offsets[queue_id] = min(offset, ends.get((topic, queue_id), offset))
            return known != before

        self.change_all(edit)

    def drop(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Delete all offsets of a group, or of a topic, durably. Requires the write lock."""

        def edit(table: _Table) -> bool:
            keys = {text: key for text in table if (key := _split(text))}
            dropped = [text for text, key in keys.items() if topic == key[0] or group == key[1]]
            for text in dropped:
                del table[text]
            return bool(dropped)

        self._change(edit)

    def _change(self, edit: Callable[[_Table], bool]) -> None:
        def edit_content(content: Content) -> bool:
            table = _parse(content)
            if not edit(table):
                return False
            content[_TABLE] = table
            if _TOPICS_OF_GROUPS in content:
                content[_TOPICS_OF_GROUPS] = _topics_of_groups(table)
            return True

        # dataVersion stays the same: it counts changes of metadata, not commits.
        self.table.change(edit_content)


def _parse(content: Content) -> _Table:
    return {text: int_keys(offsets) for text, offsets in content.get(_TABLE, {}).items()}


def _split(text: str) -> _Key | None:
    """Return topic and group; None for an invalid key, which RocketMQ also ignores."""
    topic, *rest = text.split("@")
    return (topic, rest[0]) if len(rest) == 1 else None


def _topics_of_groups(table: _Table) -> dict[str, list[str]]:
    """Return the topics by group, which RocketMQ 5 writes but never reads."""
    topics: dict[str, list[str]] = {}
    for text in table:
        if key := _split(text):
            topics.setdefault(key[1], []).append(key[0])
    return topics


MAX_GROUP_CHARACTERS = 255
"""The limit of RocketMQ 4 clients. RocketMQ 5 brokers create groups of up to 120 characters."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_FIFO, _POLICY = "consumeMessageOrderly", "groupRetryPolicy"
_CONFIG_TABLE, _FORBIDDEN = "subscriptionGroupTable", "forbiddenTable"


_MINUTE = 60_000
_FIRST_DELAY = 2
"""Where RocketMQ's list of delays has the delay after the first delivery."""


def check_group_name(name: str) -> None:
    """Raise GroupNameError unless RocketMQ accepts the name."""
    legal = isinstance(name, str) and _NAME.fullmatch(name)
    if not legal or len(name) > MAX_GROUP_CHARACTERS:
        raise GroupNameError(
            f"{name!r} is not a legal group name.",
            remedy=f"Use 1 to {MAX_GROUP_CHARACTERS} of the characters a-z A-Z 0-9 _ - % |.",
        )


class Subscriptions:
    """The settings of all groups of one store. Each call reads the file."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self.table = JsonTable(layout, "subscriptionGroup", parse_configs, required=_CONFIG_TABLE)
        self._clock = clock

    def all(self) -> dict[str, GroupConfig]:
        """Return every group by name."""
        return self.table.read()

    def create(self, name: str) -> None:
        """Create a group with RocketMQ's defaults unless it exists. Requires the write lock."""

        def edit(content: Content) -> bool:
            table = content.setdefault(_CONFIG_TABLE, {})
            if name in table:
                return False
            table[name] = _new_entry(name)
            return True

        self.table.change(edit, changed_at=self._clock())

    def put(self, config: GroupConfig) -> None:
        """Create or change a group, durably; keeps other settings. Requires the write lock."""

        def edit(content: Content) -> bool:
            table = content.setdefault(_CONFIG_TABLE, {})
            known = table.get(config.name)
            entry = dict(_new_entry(config.name) if known is None else known)
            entry["consumeEnable"] = config.consume_enabled
            entry["retryQueueNums"] = config.retry_queues
            entry["retryMaxTimes"] = config.retry_max_times
            if config.fifo or _FIFO in entry:
                entry[_FIFO] = config.fifo
            if config.backoff != _backoff(entry.get(_POLICY) or {}):
                entry[_POLICY] = _policy(config.backoff)
            table[config.name] = dict(sorted(entry.items()))
            return bool(table[config.name] != known)

        self.table.change(edit, changed_at=self._clock())

    def remove(self, name: str) -> None:
        """Delete a group, durably. Requires the write lock."""

        def edit(content: Content) -> bool:
            tables = [content.get(table) or {} for table in (_CONFIG_TABLE, _FORBIDDEN)]
            removed = [table.pop(name) for table in tables if name in table]
            return bool(removed)

        self.table.change(edit, changed_at=self._clock())


def parse_configs(content: Content) -> dict[str, GroupConfig]:
    """Return the groups of the file by name."""
    return {
        name: GroupConfig(
            name,
            bool(entry.get("consumeEnable", True)),
            int(entry.get("retryQueueNums", 1)),
            int(entry.get("retryMaxTimes", 16)),
            bool(entry.get(_FIFO, False)),
            _backoff(entry.get(_POLICY) or {}),
        )
        for name, entry in content.get(_CONFIG_TABLE, {}).items()
    }


def _backoff(policy: Content) -> Backoff:
    if policy.get("type") == "EXPONENTIAL":
        own = policy.get("exponentialRetryPolicy") or {}
        return Backoff(
            initial_ms=int(own.get("initial", 5_000)),
            max_ms=int(own.get("max", 120 * _MINUTE)),
            multiplier=int(own.get("multiplier", 2)),
        )
    delays = tuple(map(int, (policy.get("customizedRetryPolicy") or {}).get("next") or ()))
    return Backoff(delays[_FIRST_DELAY:] or delays[-1:]) if delays else Backoff()


def _policy(backoff: Backoff) -> Content:
    """Return a policy as RocketMQ 5 writes it."""
    if backoff.initial_ms:
        own = {
            "initial": backoff.initial_ms,
            "max": backoff.max_ms,
            "multiplier": backoff.multiplier,
        }
        return {"exponentialRetryPolicy": own, "type": "EXPONENTIAL"}
    if backoff.delays_ms in ((), DELAYS_MS):
        return {"type": "CUSTOMIZED"}
    unused = [backoff.delays_ms[0]] * _FIRST_DELAY
    return {"customizedRetryPolicy": {"next": [*unused, *backoff.delays_ms]}, "type": "CUSTOMIZED"}


def _new_entry(name: str) -> Content:
    return {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "groupName": name,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
