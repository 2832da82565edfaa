"""Administers the store of one broker. Every call can be repeated: deleting something that does not
exist succeeds, since an earlier attempt may have deleted it.
"""

from contextlib import suppress

from pyrocket.base.config import Retention
from pyrocket.errors import GroupNotFoundError, TopicNotFoundError
from pyrocket.store import Store
from pyrocket.values.admin import Backoff, CleanReport, GroupConfig, GroupLag, LiveMember, Place
from pyrocket.values.topics import TopicConfig


class StoreAdmin:
    """Topics, groups and retention of an open store. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create_topic(
        self,
        name: str,
        read_queues: int,
        write_queues: int,
        perm: int,
        ordered: bool = False,
        exist_ok: bool = True,
    ) -> TopicConfig:
        """Create a topic, or return an existing one unchanged.

        Raises TopicNameError; without `exist_ok` InvalidInputError (TOPIC_EXISTS).
        """
        return self._store.topics.create(
            name,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            ordered=ordered,
            exist_ok=exist_ok,
        )

    def update_topic(
        self,
        name: str,
        read_queues: int | None,
        write_queues: int | None,
        perm: int | None,
        message_type: str | None = None,
        ordered: bool | None = None,
    ) -> TopicConfig:
        """Change the given attributes of a topic; see `TopicAdmin.set_message_type`.

        Raises TopicNotFoundError, InvalidInputError.
        """
        if message_type is not None:
            self._store.topics.set_message_type(name, message_type)
        return self._store.topics.update(
            name, read_queues=read_queues, write_queues=write_queues, perm=perm, ordered=ordered
        )

    def message_type(self, name: str) -> str:
        """Return the type of a topic's messages; empty if it accepts all.

        Raises TopicNotFoundError.
        """
        return self._store.topics.message_type(self._store.topics.get(name).name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its queues and all groups' offsets in it."""
        with suppress(TopicNotFoundError):
            self._store.topics.delete(name)

    def groups(self) -> dict[str, GroupConfig]:
        """Return all consumer groups by name."""
        return self._store.groups.all()

    def group(self, group: str) -> GroupConfig:
        """Return one group. Raises GroupNotFoundError, which suggests the nearest name."""
        return self._store.groups.get(group)

    def lag(self, group: str) -> list[GroupLag]:
        """Return the lag of one group; see `Groups.lag`. Raises GroupNotFoundError."""
        return self._store.groups.lag(self.group(group).name)

    def members(self, group: str) -> list[LiveMember] | None:
        """Return None: only the broker that serves the store knows the members of its groups."""

    def create_group(self, group: str) -> GroupConfig:
        """Create a group; an existing group is returned unchanged. Raises GroupNameError."""
        return self._store.groups.create(group)

    def update_group(
        self,
        group: str,
        consume_enabled: bool | None,
        retry_queues: int | None,
        retry_max_times: int | None,
        fifo: bool | None,
        backoff: Backoff | None,
    ) -> GroupConfig:
        """Change the given settings of a group. Raises GroupNotFoundError."""
        return self._store.groups.update(
            group,
            consume_enabled=consume_enabled,
            retry_queues=retry_queues,
            retry_max_times=retry_max_times,
            fifo=fifo,
            backoff=backoff,
        )

    def reset_group(
        self, group: str, topic: str, to: Place, *, force: bool = False
    ) -> dict[int, int]:
        """Reset a group's offsets in a topic, and return them; see `Groups.reset`."""
        return dict(self._store.groups.reset(group, topic, to, force=force))

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets in all topics."""
        with suppress(GroupNotFoundError):
            self._store.groups.delete(group)

    @property
    def retention(self) -> Retention | None:
        """How long messages are kept; None means forever."""
        return self._store.retention

    def set_retention(self, retention: Retention | None) -> None:
        """Set how long messages are kept from now on; None means forever."""
        self._store.set_retention(retention)

    def clean(self, hours: float | None, total_bytes: int | None, dry_run: bool) -> CleanReport:
        """Delete the oldest log files by age or down to a size; see `Store.clean`."""
        return self._store.clean(hours=hours, total_bytes=total_bytes, dry_run=dry_run)
