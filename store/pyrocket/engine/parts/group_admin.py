"""Reads, commits, resets and deletes the offsets of consumer groups (`Store.groups`).

A group's offset in a queue is the offset of the next message to consume, as in RocketMQ. Each
change holds the write lock, so that several processes can commit concurrently.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from pyrocket.base.arguments import check_numbers, check_text, check_type
from pyrocket.disk.io import read_or_none
from pyrocket.disk.lock import is_locked
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.engine.parts.group_lag import delay_ms, positions
from pyrocket.errors import GroupNotFoundError, InvalidInputError, OffsetOutOfRangeError
from pyrocket.metadata.group_starts import GroupStartFile
from pyrocket.metadata.groups import GroupOffsets, OffsetsByQueue, Subscriptions, check_group_name
from pyrocket.values.admin import AtTime, Backoff, GroupConfig, GroupLag, ResetTo, TopicConfig
from pyrocket.values.consuming import GroupStart

_MAX_NAMED = 5
"""Maximum number of members that an error names."""


def group_has_members(group: str, members: Sequence[str]) -> InvalidInputError:
    """Return the error for a reset of a group with live members."""
    named = ", ".join(members[:_MAX_NAMED])
    more = f" and {len(members) - _MAX_NAMED} more" if len(members) > _MAX_NAMED else ""
    return InvalidInputError(
        f"the group {group!r} cannot be reset: it is consumed by {named}{more}.",
        remedy="Stop its consumers first, or reset it with `force` (--force).",
        code="GROUP_HAS_MEMBERS",
    )


@translating_methods
class Groups:
    """The consumer groups of one store.

    A change is durable when the method returns. On a store that is open for reading, changes raise
    StoreReadOnlyError.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._reader = engine, engine.reader
        self._offsets = GroupOffsets(engine.layout)
        self._starts = GroupStartFile(engine.layout)
        self._known = Subscriptions(engine.layout, engine.clock)

    def all(self) -> dict[str, GroupConfig]:
        """Return all groups by name: groups with saved settings, and groups with offsets."""
        known = self._known.all()
        for _, group in self._offsets.all():
            known.setdefault(group, GroupConfig(group))
        return dict(sorted(known.items()))

    def get(self, group: str) -> GroupConfig:
        """Return one group. Raises GroupNotFoundError with the most similar name."""
        check_text(group=group)
        known = self.all()
        if group in known:
            return known[group]
        near, names = get_close_matches(group, known, 1), ", ".join(map(repr, known))
        raise GroupNotFoundError(
            f"there is no consumer group {group!r}.",
            remedy=f"Did you mean {near[0]!r}?" if near else f"Groups: {names or 'none'}.",
        )

    def topics(self, group: str) -> list[str]:
        """Return the topics in which a group has committed offsets."""
        return sorted(topic for topic, name in self._offsets.all() if name == group)

    def committed(self, group: str, topic: str) -> OffsetsByQueue:
        """Return queue id → next offset to consume, for the queues with a committed offset."""
        return dict(sorted(self._offsets.of(group, topic).items()))

    def offsets(self) -> dict[tuple[str, str], OffsetsByQueue]:
        """Return all committed offsets, by (topic, group), as one consistent snapshot."""
        return self._offsets.all()

    def starts(self) -> Mapping[str, Mapping[str, GroupStart]]:
        """Return by group and topic where groups start in queues without a committed offset."""
        return self._starts.all()

    def lag(self, group: str = "") -> list[GroupLag]:
        """Return the lag of a group, or of all groups, in each queue of its topics.

        The topics are those in which a group has committed offsets, or has started to consume.
        Raises GroupNotFoundError.
        """
        check_text(group=group)
        name, now_ms = self.get(group).name if group else "", self._engine.clock()
        return [
            replace(lag, delay_ms=delay_ms(self._reader, lag, now_ms))
            for lag in positions(self._reader, self._offsets.all(), self._starts.all(), name)
        ]

    def create(self, group: str) -> GroupConfig:
        """Create a group with RocketMQ's defaults; an existing group is returned unchanged."""
        check_group_name(group)
        with self._engine.writer.exclusive():
            self._known.create(group)
        return self.get(group)

    def update(
        self,
        group: str,
        *,
        consume_enabled: bool | None = None,
        retry_queues: int | None = None,
        retry_max_times: int | None = None,
        fifo: bool | None = None,
        backoff: Backoff | None = None,
    ) -> GroupConfig:
        """Change the given settings of a group; return it. Raises GroupNotFoundError."""
        check_numbers(retry_queues=retry_queues or 0, retry_max_times=retry_max_times or 0)
        for name, value in (("consume_enabled", consume_enabled), ("fifo", fifo)):
            check_type((bool, type(None)), "Use True, False or None.", **{name: value})
        check_type((Backoff, type(None)), "Use a Backoff or None.", backoff=backoff)
        settings = {
            "consume_enabled": consume_enabled,
            "retry_queues": retry_queues,
            "retry_max_times": retry_max_times,
            "fifo": fifo,
            "backoff": backoff,
        }
        given: Any = {field: value for field, value in settings.items() if value is not None}
        with self._engine.writer.exclusive():
            changed = replace(self.get(group), **given)
            self._known.put(changed)
        return changed

    def commit(
        self, group: str, topic: str, offsets: Mapping[int, int], *, backwards: bool = False
    ) -> OffsetsByQueue:
        """Commit {queue id: next offset to consume}; return the group's offsets in the topic.

        The first commit creates the group. An offset lower than the committed offset is ignored as
        a late or repeated commit, unless `backwards` is set or the committed offset is after the
        end of the queue. An offset before a queue's minimum is allowed, because cleaning raises the
        minimum. On an error, nothing is committed. Raises GroupNameError, TopicNotFoundError,
        QueueNotFoundError if a queue is not a read queue of the topic, and OffsetOutOfRangeError
        for an offset after a queue's maximum.
        """
        return self._merge(
            group,
            topic,
            lambda known: self._checked(known, offsets, from_minimum=False),
            backwards=backwards,
        )

    def reset(self, group: str, topic: str, to: ResetTo, *, force: bool = False) -> OffsetsByQueue:
        """Reset a group's offsets in a topic, backwards or forwards; return them.

        `to` is {queue id: offset}, which resets these queues, or "earliest", "latest" or
        `AtTime(ms)`, which resets all read queues. A missing group is created. With `force`, a
        group is reset although a process consumes for it without a broker; later commits of this
        process override the reset. Raises the errors of `commit`, InvalidInputError
        (GROUP_HAS_MEMBERS), and OffsetOutOfRangeError also for an offset before a queue's minimum.
        """
        check_group_name(group)
        check_type(bool, "Use True or False.", force=force)
        holder = self._engine.layout.members / group
        if not force and is_locked(holder):
            pid = (read_or_none(holder) or b"").decode(errors="replace")
            raise group_has_members(group, [f"process {pid}"])
        return self._merge(group, topic, lambda known: self._find(known, to), backwards=True)

    def delete(self, group: str) -> None:
        """Delete a group, its offsets and its starts, but not its retry and dead-letter topics.

        Raises GroupNotFoundError.
        """
        with self._engine.writer.exclusive():
            self.get(group)
            self._offsets.drop(group=group)
            self._starts.drop(group)
            self._known.remove(group)

    def _merge(
        self,
        group: str,
        topic: str,
        find: Callable[[TopicConfig], OffsetsByQueue],
        *,
        backwards: bool,
    ) -> OffsetsByQueue:
        check_group_name(group)
        with self._engine.writer.exclusive():
            known = self._reader.topics.get(topic)
            offsets = find(known)
            if not offsets:
                return self.committed(group, topic)

            def may_replace(queue_id: int, old: int, new: int) -> bool:
                if backwards or new > old:
                    return True
                # After the end of the queue: a crash has truncated it, and its offsets are assigned
                # again.
                return old > self._reader.queue_offsets(known, queue_id).maximum

            self._known.create(group)
            return self._offsets.merge(group, topic, offsets, may_replace)

    def _find(self, topic: TopicConfig, to: ResetTo) -> OffsetsByQueue:
        if isinstance(to, Mapping):
            return self._checked(topic, to, from_minimum=True)
        if isinstance(to, AtTime):
            queues = range(topic.read_queues)
            return {queue: self._reader.offset_by_time(topic, queue, to.ms) for queue in queues}
        ranges = self._reader.offsets(topic).items()
        if to == "earliest":
            return {queue_id: has.minimum for queue_id, has in ranges}
        if to == "latest":
            return {queue_id: has.maximum for queue_id, has in ranges}
        raise InvalidInputError(
            f"a group cannot be reset to {to!r}.",
            remedy='Use "earliest", "latest", AtTime(ms) or {queue id: offset}.',
            code="RESET_PLACE",
        )

    def _checked(
        self, topic: TopicConfig, offsets: Mapping[int, int], *, from_minimum: bool
    ) -> OffsetsByQueue:
        """Check that the offsets are in range; return them as plain ints (numpy's are accepted)."""
        checked = {}
        if not isinstance(offsets, Mapping):
            raise InvalidInputError(
                f"the offsets are {offsets!r}.",
                remedy="Use {queue id: offset}.",
                code="NOT_OFFSETS",
            )
        for queue_id, offset in offsets.items():
            check_numbers(**{"a queue id": queue_id, f"the offset of queue {queue_id}": offset})
            has = self._reader.queue_offsets(topic, queue_id)
            first = has.minimum if from_minimum else 0
            if not first <= offset <= has.maximum:
                raise OffsetOutOfRangeError(
                    f"offset {offset} is out of range: queue {queue_id} of {topic.name!r} accepts"
                    f" {first} to {has.maximum}, the end of the queue.",
                    remedy="Nothing has been committed.",
                )
            checked[operator.index(queue_id)] = operator.index(offset)
        return checked
