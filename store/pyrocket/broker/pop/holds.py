"""Parked long polls, indexed by the queue that they wait for.

The polls of a group on all queues of a topic share the messages, so only the poll that has waited
longest is woken; if it finds messages, it wakes the next one (`LongPolls.wait`). The cost of a
wake-up does not depend on the number of polls parked.
"""

import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from pyrocket.formats.system_topics import RETRY_PREFIX

_Waiter = TypeVar("_Waiter", bound=Hashable)
_Key = tuple[str, ...] | tuple[str, int]
_Place = tuple[str, str, int | None]


@dataclass(frozen=True)
class ParkedPoll(Generic[_Waiter]):
    """A long poll of a group on one queue or all queues of a topic.

    waiter: The object by which the caller answers the poll.
    """

    group: str
    topic: str
    queue_id: int | None
    waiter: _Waiter

    @property
    def place(self) -> _Place:
        """Group, topic and queue id: the polls with the same place share the messages."""
        return self.group, self.topic, self.queue_id

    def woken_by(self) -> Iterator[_Key]:
        """Yield the keys that wake the poll: arrivals, due retries, and messages visible again."""
        yield (self.topic,) if self.queue_id is None else (self.topic, self.queue_id)
        yield (RETRY_PREFIX + self.group,)
        yield self.group, self.topic


class Holds(Generic[_Waiter]):
    """The parked polls of a broker. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[_Key, dict[_Place, dict[ParkedPoll[_Waiter], None]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, hold: ParkedPoll[_Waiter]) -> None:
        """Add a hold. The caller must then check again for messages that have just arrived."""
        with self._lock:
            for key in hold.woken_by():
                places = self._by_key.setdefault(key, {})
                places.setdefault(hold.place, {})[hold] = None
            self._count += 1

    def remove(self, hold: ParkedPoll[_Waiter]) -> bool:
        """Remove a hold; return whether it was still parked."""
        with self._lock:
            return self._remove(hold)

    def arrived(self, topic: str, queue_id: int) -> list[ParkedPoll[_Waiter]]:
        """Remove and return the holds that a message in this queue may answer.

        Of each group, these are all holds on this queue, and one hold on all queues of the topic.
        """
        return self._take((topic,), (topic, queue_id))

    def visible(self, group: str, topic: str) -> list[ParkedPoll[_Waiter]]:
        """Remove and return holds of a group on a topic, as `arrived`; see `Swept.news`."""
        is_retry = topic == RETRY_PREFIX + group
        return self._take((topic,) if is_retry else (group, topic))

    def _take(self, *keys: _Key) -> list[ParkedPoll[_Waiter]]:
        with self._lock:
            found = [
                hold
                for key in keys
                for (*_, queue_id), holds in self._by_key.get(key, {}).items()
                for hold in islice(holds, 1 if queue_id is None else None)
            ]
            return [hold for hold in found if self._remove(hold)]

    def _remove(self, hold: ParkedPoll[_Waiter]) -> bool:
        found = False
        for key in hold.woken_by():
            places = self._by_key.get(key, {})
            holds = places.get(hold.place, {})
            found = found or hold in holds
            holds.pop(hold, None)
            if not holds:
                places.pop(hold.place, None)
            if not places:
                self._by_key.pop(key, None)
        self._count -= found
        return found
