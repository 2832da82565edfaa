"""`GroupStates`: the states of all groups of one store, by name."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyrocket.broker.pop.events import Drop, Forget
from pyrocket.broker.pop.group import GroupState, Put
from pyrocket.errors import GroupNotFoundError, StorePermissionError
from pyrocket.services.consumption import Consumption
from pyrocket.values.admin import GroupConfig


class GroupStates:
    """The states of consumer groups. Safe to share between threads."""

    def __init__(self, storage: Consumption, put: Put, groups: dict[str, GroupState]) -> None:
        self._storage, self._put, self._groups = storage, put, groups
        self._lock = threading.Lock()

    def all(self) -> list[GroupState]:
        """Return the states of all groups."""
        with self._lock:
            return [*self._groups.values()]

    def config(self, group: str) -> GroupConfig:
        """Return the settings of a group. Raises GroupNotFoundError, or StorePermissionError if it
        may not consume.
        """
        config = self._storage.group(group)
        if config is None:
            raise GroupNotFoundError(
                f"there is no consumer group {group!r}.",
                remedy="Create the group, or set auto_create_groups.",
            )
        if not config.consume_enabled:
            raise StorePermissionError(
                f"the consumer group {group!r} may not consume.",
                remedy="Set consumeEnable of the group to true.",
            )
        return config

    def has(self, group: str) -> bool:
        """Whether a group has a state."""
        return group in self._groups

    def known(self, group: str) -> GroupState:
        """Return the state of a group; if it has none, return an empty state without storing it."""
        with self._lock:
            return self._groups.get(group) or GroupState(group)

    def made(self, group: str) -> GroupState:
        """Return the state of a group; a missing state is created."""
        with self._lock:
            return self._groups.setdefault(group, GroupState(group))

    @contextmanager
    def opened(self, group: str) -> Iterator[GroupState]:
        """Lock and yield the state of a group; a missing state is created."""
        while True:
            state = self.made(group)
            with state.lock:
                if self._groups.get(group) is state:  # Another thread may have dropped the state.
                    yield state
                    return

    def drop(self, group: str) -> None:
        """Remove the state of a deleted group. Raises BrokerBusyError."""
        state = self.known(group)
        with state.lock:
            if self._groups.get(group) is not state:
                return
            self._put(state, [Drop(group)])
            with self._lock:
                del self._groups[group]

    def drop_topic(self, topic: str) -> None:
        """Remove the state of groups in a deleted topic. Raises BrokerBusyError."""
        for state in self.all():
            with state.lock:
                places = [place for place in state.queues if place[0] == topic]
                if places:
                    self._put(state, [Forget(state.name, *place) for place in places])

    def drop_deleted(self) -> None:
        """Remove the groups that are no longer in RocketMQ's files. Raises BrokerBusyError."""
        for state in self.all():
            if self._is_deleted(state):
                self.drop(state.name)

    def _is_deleted(self, state: GroupState) -> bool:
        """Whether a group was in RocketMQ's files, but is not in them now.

        A group of a RocketMQ 5 broker may have committed offsets, but no settings.
        """
        if self._storage.group(state.name) is not None:
            state.listed = True
            return False
        return state.listed or not any(name == state.name for _, name in self._storage.committed())
