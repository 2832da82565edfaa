"""`RemoteAdmin`: administers a store through its broker."""

from collections.abc import Mapping
from typing import Any

from pyrocket.base.config import DEFAULT_QUEUES, Retention
from pyrocket.errors import InvalidInputError
from pyrocket.remote.client import Client
from pyrocket.values.admin import (
    AtTime,
    Backoff,
    CleanReport,
    GroupConfig,
    GroupLag,
    LiveMember,
    Place,
)
from pyrocket.values.topics import PERM_READ, PERM_WRITE, TopicConfig
from pyrocket.wire.messages import values_of


class RemoteAdmin:
    """The topics, groups and retention of a broker's store.

    The methods correspond to those of `Store.topics`, `Store.groups` and `Store`, and raise the
    same errors.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def _value(self, call: str, kind: Any, /, **arguments: Any) -> Any:
        return values_of(self._client.call(call, **arguments), {"value": kind})["value"]

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return all topics by name."""
        return {topic.name: topic for topic in self._value("Topics", list[TopicConfig])}

    def create_topic(
        self,
        name: str,
        *,
        read_queues: int = DEFAULT_QUEUES,
        write_queues: int = DEFAULT_QUEUES,
        perm: int = PERM_READ | PERM_WRITE,
        ordered: bool = False,
        exist_ok: bool = True,
    ) -> TopicConfig:
        """Create a topic. With `exist_ok` an existing topic is returned unchanged."""
        if not exist_ok and name in self.topics():
            raise InvalidInputError(
                f"topic {name!r} exists.", remedy="Use update_topic.", code="TOPIC_EXISTS"
            )
        return self._value(
            "CreateTopic",
            TopicConfig,
            name=name,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            ordered=ordered,
        )

    def update_topic(
        self,
        name: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        message_type: str | None = None,
        ordered: bool | None = None,
    ) -> TopicConfig:
        """Change the given attributes; see `TopicAdmin.set_message_type`.

        Raises TopicNotFoundError, InvalidInputError.
        """
        return self._value(
            "UpdateTopic",
            TopicConfig,
            name=name,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            message_type=message_type,
            ordered=ordered,
        )

    def message_type(self, name: str) -> str:
        """Return the type of a topic's messages; empty if it accepts all types.

        Raises TopicNotFoundError.
        """
        return self._value("MessageType", str, name=name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its queues and all groups' offsets in it. Raises TopicNotFoundError."""
        self._client.call("Topic", name=name)
        self._client.call("DeleteTopic", name=name)

    def groups(self) -> dict[str, GroupConfig]:
        """Return all consumer groups by name."""
        return {group.name: group for group in self._value("Groups", list[GroupConfig])}

    def group(self, group: str) -> GroupConfig:
        """Return one group. Raises GroupNotFoundError, which suggests the nearest name."""
        return self._value("Group", GroupConfig, group=group)

    def lag(self, group: str) -> list[GroupLag]:
        """Return the lag of one group; see `Groups.lag`. Raises GroupNotFoundError."""
        return self._value("Lag", list[GroupLag], group=group)

    def members(self, group: str) -> list[LiveMember] | None:
        """Return a group's live members, sorted by their ids; empty for a missing group."""
        return self._value("Members", list[LiveMember], group=group)

    def create_group(self, group: str) -> GroupConfig:
        """Create a group; an existing group is returned unchanged. Raises GroupNameError."""
        return self._value("CreateGroup", GroupConfig, group=group)

    def update_group(
        self,
        group: str,
        *,
        consume_enabled: bool | None = None,
        retry_queues: int | None = None,
        retry_max_times: int | None = None,
        fifo: bool | None = None,
        backoff: Backoff | None = None,
    ) -> GroupConfig:
        """Change the given settings. Raises GroupNotFoundError."""
        return self._value(
            "UpdateGroup",
            GroupConfig,
            group=group,
            consume_enabled=consume_enabled,
            retry_queues=retry_queues,
            retry_max_times=retry_max_times,
            fifo=fifo,
            backoff=backoff,
        )

    def reset_group(
        self, group: str, topic: str, to: Place, *, force: bool = False
    ) -> dict[int, int]:
        """Reset a group's offsets in a topic, and return them; see `Groups.reset`.

        A group with live members is reset only with `force`; they continue at the new offsets.
        """
        if isinstance(to, AtTime):
            place: dict[str, Any] = {"time_ms": to.ms}
        else:
            place = {"rule": to} if isinstance(to, str) else {"offsets": to}
        return self._value(
            "ResetGroup", dict[int, int], group=group, topic=topic, force=force, **place
        )

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets in all topics. Raises GroupNotFoundError."""
        self._client.call("Group", group=group)
        self._client.call("DeleteGroup", group=group)

    @property
    def retention(self) -> Retention | None:
        """How long messages are kept; None means forever."""
        return self._value("Retention", Retention | None)

    def set_retention(self, retention: Retention | None) -> None:
        """Set how long messages are kept from now on; None means forever."""
        self._client.call("SetRetention", retention=retention)

    def clean(
        self, *, hours: float | None = None, total_bytes: int | None = None, dry_run: bool = False
    ) -> CleanReport:
        """Delete the oldest log files by age or down to a size; the default is `retention`."""
        return self._value(
            "Clean", CleanReport, hours=hours, total_bytes=total_bytes, dry_run=dry_run
        )
