"""`GroupStates`: the states of all groups of one store, by name."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyrocket.broker.pop.events import Drop, Event
from pyrocket.broker.pop.group import GroupState
from pyrocket.broker.pop.values import Stored
from pyrocket.services.consumption import Consumption

Put = Callable[[GroupState, Sequence[Event]], Stored]


class GroupStates:
    """The groups that have a state. Safe to share between threads."""

    def __init__(self, storage: Consumption, put: Put, groups: dict[str, GroupState]) -> None:
        self._storage, self._put, self._groups = storage, put, groups
        self._lock = threading.Lock()

    def all(self) -> list[GroupState]:
        """Return the states of all groups."""
        with self._lock:
            return [*self._groups.values()]

    def has(self, group: str) -> bool:
        """Whether a group has a state."""
        return group in self._groups

    def known(self, group: str) -> GroupState:
        """Return the state of a group; an empty one, which is not kept, if it has none."""
        with self._lock:
            return self._groups.get(group) or GroupState(group)

    def made(self, group: str) -> GroupState:
        """Return the state of a group, which is made if there is none."""
        with self._lock:
            return self._groups.setdefault(group, GroupState(group))

    @contextmanager
    def opened(self, group: str) -> Iterator[GroupState]:
        """Lock the state of a group, which is made if there is none."""
        while True:
            state = self.made(group)
            with state.lock:
                if self._groups.get(group) is state:  # It was not dropped meanwhile.
                    yield state
                    return

    def drop(self, group: str) -> None:
        """Forget a group that was deleted. Raises BrokerBusyError."""
        state = self.known(group)
        with state.lock:
            if self._groups.get(group) is not state:
                return
            self._put(state, [Drop(group)])
            with self._lock:
                del self._groups[group]

    def drop_deleted(self) -> None:
        """Forget the groups that are no longer in RocketMQ's files. Raises BrokerBusyError."""
        for state in self.all():
            if self._is_deleted(state):
                self.drop(state.name)

    def _is_deleted(self, state: GroupState) -> bool:
        """Whether a group was deleted: it was in RocketMQ's files, and is no longer.

        A Java broker's messages in flight may be of a group of which only the offsets are known.
        """
        if self._storage.group(state.name) is not None:
            state.listed = True
            return False
        return state.listed or not any(name == state.name for _, name in self._storage.committed())
