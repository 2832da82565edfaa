"""Where a group starts in its queues, and the offsets that it has reached: both are stored.

A clustering group stores them at the brokers of its queues, a broadcasting consumer in a file.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from pyrocket.client.core.failures import Failures, attempt
from pyrocket.client.core.process_queue import ProcessQueue
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.consuming import Committed, GroupStart
from pyrocket.errors import PyrocketError
from pyrocket.message import MessageQueue

END = GroupStart()
"""The end of a broker's log at the group's first contact with a topic."""

_MARGIN_MS = 60_000
"""How much the clocks of brokers may differ, and how late a member may notice a new broker."""

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
        ...

    async def start(self, queue: MessageQueue) -> int:
        """Return the stored next offset of a queue; if there is none, where the group starts."""
        ...

    async def save(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, Committed]:
        """Store offsets; raise PyrocketError if some were not stored."""
        ...


class BrokerOffsets:
    """Stores the starts and offsets of a clustering group at the brokers of its queues."""

    def __init__(self, transport: ClientTransport, group: str, member: Member) -> None:
        self._transport, self._group, self._member = transport, group, member
        self._known: dict[str, Mapping[str, GroupStart]] = {}

    async def first_contact(
        self, broker: str, wanted: Mapping[str, GroupStart], brokers: Collection[str]
    ) -> Mapping[str, GroupStart]:
        """Return the starts for a heartbeat; the first one for a topic asks the other brokers."""
        missing = wanted.keys() - self._known.get(broker, {}).keys()
        if any(wanted[topic] == END for topic in missing):
            asking = [asyncio.ensure_future(self._ask(one)) for one in sorted({*brokers, broker})]
            await asyncio.wait(asking, timeout=_PATIENCE_S)
        others = [starts for name, starts in self._known.items() if name != broker]
        return {topic: _start_at(topic, start, others) for topic, start in wanted.items()}

    async def _ask(self, broker: str) -> None:
        try:
            self._known[broker] = (await self._transport.group_starts(broker, self._group)).starts
        except PyrocketError as error:
            _log.info("the starts of %s at %s are unknown: %s", self._group, broker, error)

    async def start(self, queue: MessageQueue) -> int:
        """Return the offset that the group has committed, or that of its start."""
        return await self._transport.start_offset(self._group, queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, Committed]:
        """Commit offsets at each broker, also after another broker has failed."""
        replies, failures = dict[MessageQueue, Committed](), list[PyrocketError]()

        async def commit(broker: str) -> None:
            own = {queue: at for queue, at in offsets.items() if queue.broker == broker}
            who = self._group, self._member.client_id, self._member.incarnation
            try:
                replies.update(await self._transport.commit(*who, own))
            except PyrocketError as error:
                failures.append(error)

        await asyncio.gather(*map(commit, sorted({queue.broker for queue in offsets})))
        if failures:
            raise failures[0]
        return replies


def _start_at(
    topic: str, wanted: GroupStart, others: Iterable[Mapping[str, GroupStart]]
) -> GroupStart:
    known = [starts[topic] for starts in others if topic in starts]
    return later(known) if wanted == END and known else wanted


def later(known: Collection[GroupStart]) -> GroupStart:
    """Return the start of a group at a broker that it meets later than those with known starts.

    >>> later([GroupStart(log_offset=4711, time_ms=100_000)])
    GroupStart(log_offset=None, time_ms=40000)
    >>> later([GroupStart(log_offset=0, time_ms=0), GroupStart(log_offset=4711, time_ms=100_000)])
    GroupStart(log_offset=None, time_ms=0)
    """
    return GroupStart(time_ms=min(map(_time_ms, known)))


def _time_ms(start: GroupStart) -> int:
    margin = 0 if start.log_offset is None else _MARGIN_MS
    return max((start.time_ms or 0) - margin, 0)


async def save(store: OffsetStore, held: Iterable[ProcessQueue], failures: Failures) -> bool:
    """Store the offsets of queues that have changed; return False after an error.

    An error is logged; the offsets are stored by a later call. Nothing is stored for a queue before
    its offset has passed the one at which it started.
    """
    changed = {one: one.commit_offset for one in held if one.commit_offset != one.stored}
    for one, offset in changed.items():
        one.sent = offset
    if changed:
        call = store.save({one.queue: offset for one, offset in changed.items()})
        what = f"{len(changed)} offsets were not stored and will be later"
        if not await attempt(failures, what, call):
            return False
    for one, offset in changed.items():
        one.stored = offset
    return True
