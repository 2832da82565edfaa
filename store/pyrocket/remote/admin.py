# mypy: disable-error-code="empty-body"
"""`RemoteAdmin`: administers a store through its broker."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pyrocket.base.config import DEFAULT_QUEUES, Retention
from pyrocket.engine.parts.group_admin import Groups
from pyrocket.engine.parts.topic_admin import TopicAdmin
from pyrocket.errors import InvalidInputError
from pyrocket.remote.client import Client, remote
from pyrocket.values.admin import (
    PERM_READ,
    PERM_WRITE,
    AtTime,
    CleanReport,
    GroupConfig,
    GroupLag,
    LiveMember,
    ResetTo,
    TopicConfig,
)
from pyrocket.wire.messages import value_of


class RemoteAdmin:
    """The topics, groups and retention of a broker's store.

    The methods are those of `Store`, and raise the same errors.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    @cached_property
    def topics(self) -> "RemoteTopics":
        """The topic table, as `Store.topics`."""
        return RemoteTopics(self.client)

    @cached_property
    def groups(self) -> "RemoteGroups":
        """Consumer groups and their offsets, as `Store.groups`."""
        return RemoteGroups(self.client)

    @property
    def retention(self) -> Retention | None:
        """How long messages are kept; None means forever."""
        return value_of(self.client.call("Retention"), Retention | None)

    @remote("SetRetention")
    def set_retention(self, retention: Retention | None) -> None:
        """Set how long messages are kept from now on; None means forever."""

    @remote("Clean")
    def clean(
        self, *, hours: float | None = None, total_bytes: int | None = None, dry_run: bool = False
    ) -> CleanReport:
        """Delete the oldest log files by age or down to a size; the default is `retention`."""


class RemoteTopics:
    """The topics of a broker's store, with the methods of `Store.topics`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def all(self) -> Mapping[str, TopicConfig]:
        """Return all topics by name."""
        topics = value_of(self.client.call("Topics"), list[TopicConfig])
        return {topic.name: topic for topic in topics}

    get = remote("Topic")(TopicAdmin.get)
    update = remote("UpdateTopic")(TopicAdmin.update)
    message_type = remote("MessageType")(TopicAdmin.message_type)

    def create(
        self,
        name: str,
        *,
        read_queues: int = DEFAULT_QUEUES,
        write_queues: int = DEFAULT_QUEUES,
        perm: int = PERM_READ | PERM_WRITE,
        ordered: bool = False,
        exist_ok: bool = True,
    ) -> TopicConfig:
        """Create a topic. An existing topic is returned, or rejected without `exist_ok`."""
        if not exist_ok and name in self.all():
            raise InvalidInputError(
                f"topic {name!r} already exists.",
                remedy="Use `topics.update` to change it.",
                code="TOPIC_EXISTS",
            )
        return self._create(name, read_queues, write_queues, perm, ordered)

    @remote("CreateTopic")
    def _create(
        self, name: str, read_queues: int, write_queues: int, perm: int, ordered: bool
    ) -> TopicConfig: ...

    def set_message_type(self, name: str, message_type: str) -> None:
        """Set which messages RocketMQ's clients may send; see `TopicAdmin.set_message_type`."""
        self.client.call("UpdateTopic", name=name, message_type=message_type)

    def delete(self, name: str) -> None:
        """Delete a topic, its queues and all groups' offsets in it. Raises TopicNotFoundError."""
        self.client.call("DeleteTopic", name=self.get(name).name)


class RemoteGroups:
    """The consumer groups of a broker's store, with the methods of `Store.groups`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def all(self) -> dict[str, GroupConfig]:
        """Return all groups by name."""
        groups = value_of(self.client.call("Groups"), list[GroupConfig])
        return {group.name: group for group in groups}

    get = remote("Group")(Groups.get)
    create = remote("CreateGroup")(Groups.create)
    update = remote("UpdateGroup")(Groups.update)

    @remote("Lag")
    def lag(self, group: str) -> list[GroupLag]:
        """Return the lag of one group; see `Groups.lag`. Raises GroupNotFoundError."""

    @remote("Members")
    def members(self, group: str) -> list[LiveMember]:
        """Return a group's live members, sorted by their ids; empty for a missing group."""

    def reset(self, group: str, topic: str, to: ResetTo, *, force: bool = False) -> dict[int, int]:
        """Reset a group's offsets in a topic, and return them; see `Groups.reset`.

        A group with live members is reset only with `force`; they continue at the new offsets.
        """
        if isinstance(to, AtTime):
            place: dict[str, Any] = {"time_ms": to.ms}
        else:
            place = {"rule": to} if isinstance(to, str) else {"offsets": to}
        reply = self.client.call("ResetGroup", group=group, topic=topic, force=force, **place)
        return value_of(reply, dict[int, int])

    def delete(self, group: str) -> None:
        """Delete a group and its offsets in all topics. Raises GroupNotFoundError."""
        self.client.call("DeleteGroup", group=self.get(group).name)
