"""Consumer groups and their settings: RocketMQ's `config/subscriptionGroup.json`.

A group is made by its first commit, with RocketMQ's defaults; the settings that only RocketMQ uses
stay as they are. Source: `SubscriptionGroupManager`, `SubscriptionGroupConfig`.
"""

import re
from dataclasses import dataclass

from pyrocket.clock import Clock
from pyrocket.disk.layout import Layout
from pyrocket.errors import GroupNameError
from pyrocket.metadata.json_table import Content, JsonTable

MAX_GROUP_CHARACTERS = 255
"""RocketMQ 4's limit, of its clients; brokers from 5 on make no group longer than 120."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_TABLE, _FORBIDDEN = "subscriptionGroupTable", "forbiddenTable"


@dataclass(frozen=True)
class GroupConfig:
    """One consumer group.

    consume_enabled: whether it may consume at all.
    retry_queues: queues of its retry topic.
    retry_max_times: how often a message is tried again before it goes to the dead letters.
    """

    name: str
    consume_enabled: bool = True
    retry_queues: int = 1
    retry_max_times: int = 16


def check_group_name(name: str) -> None:
    """Raise GroupNameError unless RocketMQ takes the name."""
    legal = isinstance(name, str) and _NAME.fullmatch(name)
    if not legal or len(name) > MAX_GROUP_CHARACTERS:
        raise GroupNameError(
            f"{name!r} is not a legal group name.",
            remedy=f"Use 1 to {MAX_GROUP_CHARACTERS} of the characters a-z A-Z 0-9 _ - % |.",
        )


class Subscriptions:
    """The group table of one store, read anew at each call."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self.table = JsonTable(layout, "subscriptionGroup", _parse, required=_TABLE)
        self._clock = clock

    def all(self) -> dict[str, GroupConfig]:
        """Return every group by name."""
        return self.table.read()

    def create(self, name: str) -> None:
        """Make a group as RocketMQ does when it meets a new one; no change if it is there.

        The caller holds the mutex.
        """

        def edit(content: Content) -> bool:
            table = content.setdefault(_TABLE, {})
            if name in table:
                return False
            table[name] = _new_entry(name)
            return True

        self.table.change(edit, changed_at=self._clock())

    def remove(self, name: str) -> None:
        """Forget a group, durably; the caller holds the mutex."""

        def edit(content: Content) -> bool:
            tables = [content.get(table) or {} for table in (_TABLE, _FORBIDDEN)]
            removed = [table.pop(name) for table in tables if name in table]
            return bool(removed)

        self.table.change(edit, changed_at=self._clock())


def _parse(content: Content) -> dict[str, GroupConfig]:
    return {
        name: GroupConfig(
            name,
            bool(entry.get("consumeEnable", True)),
            int(entry.get("retryQueueNums", 1)),
            int(entry.get("retryMaxTimes", 16)),
        )
        for name, entry in content.get(_TABLE, {}).items()
    }


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
