"""Where a group starts in its queues, and the offsets that it has reached: both are stored.

A clustering group stores them at the brokers of its queues, a broadcasting consumer in a file.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from pyrocket.base.failures import Failures, attempt
from pyrocket.client.core.process_queue import ProcessQueue
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.errors import PyrocketError
from pyrocket.values.consuming import Committed, GroupPosition, GroupStart, GroupStarts
from pyrocket.values.message import MessageQueue

END = GroupStart()
"""The end of a broker's log at the group's first contact with a topic."""

_MARGIN_MS = 60_000
"""How late a member may notice a new broker."""

_PATIENCE_S = 3

_log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Stores the starts and offsets of a group."""

    async def first_contact(
        self, broker: str, wanted: Mapping[str, GroupStart], brokers: Collection[str]
    ) -> Mapping[str, GroupStart]:
        """Return the starts that the next heartbeat asks a broker to store, by topic.

        wanted: The starts by the consumer's settings.
        brokers: All brokers of the group's topics.

        Called before each heartbeat. At a broker that the group meets later than others, the group
        starts at the time when it met the first one. Raises PyrocketError.
        """

    async def start(self, queue: MessageQueue) -> GroupPosition:
        """Return the stored position in a queue; if there is none, where the group starts."""

    async def save(
        self, positions: Mapping[MessageQueue, GroupPosition]
    ) -> Mapping[MessageQueue, Committed]:
        """Store positions; raise PyrocketError if some were not stored."""


class _Known(NamedTuple):
    """What a broker has answered, and when it was asked, in seconds of the event loop."""

    asked_s: float
    found: GroupStarts

    def age_ms(self, topic: str) -> int:
        """Return how long ago the broker has stored a start: the clocks of brokers may differ.

        If the broker's clock was set back since then, this is the time since it was asked.
        """
        since_s = asyncio.get_running_loop().time() - self.asked_s
        stored_ms = self.found.starts[topic].time_ms or 0
        return int(1000 * since_s) + max((self.found.end.time_ms or 0) - stored_ms, 0)


class BrokerOffsets:
    """Stores the starts and offsets of a clustering group at the brokers of its queues."""

    def __init__(self, transport: ClientTransport, group: str, member: Member) -> None:
        self._transport, self._group, self._member = transport, group, member
        self._known: dict[str, _Known] = {}

    async def first_contact(
        self, broker: str, wanted: Mapping[str, GroupStart], brokers: Collection[str]
    ) -> Mapping[str, GroupStart]:
        """Return the starts for a heartbeat; the first one for a topic asks all brokers.

        This broker is asked before the others. If none of them knows the group afterwards, all
        messages that are stored here after another member has met one of them are consumed.
        """
        known = self._known[broker].found.starts if broker in self._known else {}
        is_first = any(start == END and topic not in known for topic, start in wanted.items())
        if is_first:
            await self._ask({broker})
        end = self._known[broker].found.end if broker in self._known else END
        if is_first and (others := {*brokers} - {broker}):
            await self._ask(others)
        return {topic: self._start_at(broker, topic, start, end) for topic, start in wanted.items()}

    async def _ask(self, brokers: Collection[str]) -> None:
        """Ask brokers for the starts; those that do not answer soon remain unknown."""

        async def ask(broker: str) -> None:
            asked_s = asyncio.get_running_loop().time()
            try:
                starts = await self._transport.group_starts(broker, self._group)
            except PyrocketError as error:
                _log.info("the starts of %s at %s are unknown: %s", self._group, broker, error)
            else:
                self._known[broker] = _Known(asked_s, starts)

        asking = [asyncio.ensure_future(ask(broker)) for broker in sorted(brokers)]
        await asyncio.wait(asking, timeout=_PATIENCE_S)

    def _start_at(self, broker: str, topic: str, wanted: GroupStart, end: GroupStart) -> GroupStart:
        others = [
            (known.found.starts[topic], known.age_ms(topic))
            for name, known in self._known.items()
            if name != broker and topic in known.found.starts
        ]
        if wanted != END or end == END:
            return wanted
        return later(end, others) if others else end

    async def start(self, queue: MessageQueue) -> GroupPosition:
        return await self._transport.start_offset(self._group, queue)

    async def save(
        self, positions: Mapping[MessageQueue, GroupPosition]
    ) -> Mapping[MessageQueue, Committed]:
        """Commit positions at each broker, also after another broker has failed."""
        replies, failures = dict[MessageQueue, Committed](), list[PyrocketError]()
        calls = defaultdict[tuple[str, int | None], dict[MessageQueue, int]](dict)
        for queue, (offset, epoch) in positions.items():
            calls[queue.broker, epoch][queue] = offset

        async def save_in(epoch: int | None, offsets: Mapping[MessageQueue, int]) -> None:
            who = self._group, self._member.client_id, self._member.incarnation
            try:
                replies.update(await self._transport.commit(*who, offsets, epoch))
            except PyrocketError as error:
                failures.append(error)

        await asyncio.gather(*(save_in(epoch, calls[name, epoch]) for name, epoch in calls))
        if failures:
            raise failures[0]
        return replies


def later(end: GroupStart, others: Collection[tuple[GroupStart, int]]) -> GroupStart:
    """Return the start of a group at a broker that it meets later than others.

    end: The end of the broker's log.
    others: The starts at the other brokers, and their ages in milliseconds, which are not negative.

    >>> end = GroupStart(log_offset=4711, time_ms=900_000)
    >>> later(end, [(GroupStart(log_offset=7, time_ms=200_000), 300_000)])
    GroupStart(log_offset=None, time_ms=540000, end_offset=4711)
    >>> later(end, [(GroupStart(log_offset=0, time_ms=0), 300_000)])
    GroupStart(log_offset=None, time_ms=0, end_offset=4711)
    """

    def time_ms(start: GroupStart, age_ms: int) -> int:
        if not start.time_ms:  # From the first message on.
            return 0
        return max((end.time_ms or 0) - age_ms - _MARGIN_MS, 0)

    at_ms = min(time_ms(*other) for other in others)
    return GroupStart(time_ms=at_ms, end_offset=end.log_offset)


async def save(store: OffsetStore, held: Iterable[ProcessQueue], failures: Failures) -> bool:
    """Store the offsets of queues that have changed; return False after an error.

    An error is logged; the offsets are stored by a later call. Nothing is stored for a queue before
    its offset has passed the one at which it started.
    """
    changed = {pq: pq.position for pq in held if pq.commit_offset != pq.stored}
    for pq, position in changed.items():
        pq.sent = position.offset
    if changed:
        call = store.save({pq.queue: position for pq, position in changed.items()})
        if not await attempt(failures, "offsets were not stored and will be later", call):
            return False
    for pq, position in changed.items():
        pq.stored = position.offset
    return True
