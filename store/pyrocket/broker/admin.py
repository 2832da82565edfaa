"""Administration of a store as one broker. Every call can be repeated: deletions ignore what is
missing, since an earlier call may have deleted it.
"""

from collections.abc import Mapping
from contextlib import suppress

from pyrocket.config import Retention
from pyrocket.engine.group_admin import AtTime, Place
from pyrocket.engine.retention_rules import CleanReport
from pyrocket.errors import GroupNotFoundError, OptionError, TopicNotFoundError
from pyrocket.metadata.groups import GroupConfig
from pyrocket.metadata.topics import TopicConfig
from pyrocket.store import Store


class StoreAdmin:
    """Topics, groups and retention of an open store. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create_topic(
        self, name: str, read_queues: int, write_queues: int, perm: int
    ) -> TopicConfig:
        """Create a topic; an existing one is returned unchanged. Raises TopicNameError."""
        return self._store.topics.create(
            name, read_queues=read_queues, write_queues=write_queues, perm=perm
        )

    def update_topic(
        self,
        name: str,
        read_queues: int | None,
        write_queues: int | None,
        perm: int | None,
    ) -> TopicConfig:
        """Change the given attributes of a topic. Raises TopicNotFoundError."""
        return self._store.topics.update(
            name, read_queues=read_queues, write_queues=write_queues, perm=perm
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its queues and all groups' offsets in it."""
        with suppress(TopicNotFoundError):
            self._store.topics.delete(name)

    def groups(self) -> list[GroupConfig]:
        """Return all consumer groups."""
        return [*self._store.groups.all().values()]

    def group(self, group: str) -> GroupConfig:
        """Return one group. Raises GroupNotFoundError, which names the nearest."""
        return self._store.groups.get(group)

    def create_group(self, group: str) -> GroupConfig:
        """Create a group; an existing one is returned unchanged. Raises GroupNameError."""
        return self._store.groups.create(group)

    def reset_group(
        self, group: str, topic: str, rule: str, time_ms: int | None, offsets: Mapping[int, int]
    ) -> dict[int, int]:
        """Reset a group in a topic: by a rule, to a time, or to offsets; see `Groups.reset`.

        Raises OptionError unless exactly one is given.
        """
        given: list[Place] = [offsets] if offsets else []
        given += [AtTime(time_ms)] if time_ms is not None else []
        if rule in ("earliest", "latest"):
            given.append("earliest" if rule == "earliest" else "latest")
        if len(given) != 1 or (rule and rule not in given):
            raise OptionError(
                "a group is reset to one place.",
                remedy="Name earliest, latest, a time, or an offset for each queue.",
            )
        return dict(self._store.groups.reset(group, topic, given[0]))

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets in all topics."""
        with suppress(GroupNotFoundError):
            self._store.groups.delete(group)

    def retention(self) -> Retention | None:
        """Return how long messages are kept; None: for ever."""
        return self._store.retention

    def set_retention(self, retention: Retention | None) -> None:
        """Set how long messages are kept from now on; None: for ever."""
        self._store.set_retention(retention)

    def clean(self, hours: float | None, total_bytes: int | None, dry_run: bool) -> CleanReport:
        """Delete the oldest log files by age or down to a size; see `Store.clean`."""
        return self._store.clean(hours=hours, total_bytes=total_bytes, dry_run=dry_run)
