"""The offsets that a consumer has reached, until they are stored at the broker or in a file."""

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from pyrocket.client.transport import ClientTransport, Member
from pyrocket.consuming import Committed
from pyrocket.errors import PyrocketError
from pyrocket.message import MessageQueue

_log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Stores the offsets of a group."""

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the stored next offset of a queue; None if there is none."""
        ...

    async def save(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, Committed]:
        """Store offsets; raise PyrocketError if some were not stored."""
        ...


class BrokerOffsets:
    """Stores the offsets of a clustering group at the brokers of its queues."""

    def __init__(self, transport: ClientTransport, group: str, member: Member) -> None:
        self._transport, self._group, self._member = transport, group, member

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed."""
        return await self._transport.committed(self._group, queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, Committed]:
        """Commit offsets at each broker, also after another broker has failed."""
        member, replies = self._member, dict[MessageQueue, Committed]()
        failure: PyrocketError | None = None
        for broker in sorted({queue.broker for queue in offsets}):
            own = {queue: at for queue, at in offsets.items() if queue.broker == broker}
            try:
                replies |= await self._transport.commit(
                    self._group, member.client_id, member.incarnation, own
                )
            except PyrocketError as error:
                failure = error
        if failure is not None:
            raise failure
        return replies


class Offsets:
    """The offsets of the queues that a consumer holds. Used by one event loop."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._reached: dict[MessageQueue, int] = {}
        self._saved: dict[MessageQueue, int] = {}

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the stored next offset of a queue; None if there is none."""
        return await self._store.load(queue)

    def reach(self, queue: MessageQueue, offset: int) -> None:
        """Note the next offset to consume."""
        self._reached[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Remove a queue that was lost. Source: `RebalanceImpl.removeDirtyOffset`."""
        self._reached.pop(queue, None)
        self._saved.pop(queue, None)

    async def save(self, queues: Collection[MessageQueue] | None = None) -> bool:
        """Store the offsets of these queues, or of all, that have changed; False after an error.

        An error is logged; the offsets are stored by a later call.
        """
        changed = {
            queue: offset
            for queue, offset in self._reached.items()
            if (queues is None or queue in queues) and self._saved.get(queue) != offset
        }
        if not changed:
            return True
        try:
            await self._store.save(changed)
        except PyrocketError as error:
            _log.warning("%d offsets were not stored and will be later: %s", len(changed), error)
            return False
        self._saved |= {queue: at for queue, at in changed.items() if queue in self._reached}
        return True
