"""The core of a pull consumer: its caller assigns queues, and polls their messages.

Source: `DefaultLitePullConsumerImpl`.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from pyrocket.client.consume_from import OffsetQuery, start_offset
from pyrocket.client.consumer_config import ConsumerConfig
from pyrocket.client.core.group_member import REBALANCE_S
from pyrocket.client.core.listening import attempt
from pyrocket.client.core.offsets import Offsets, OffsetStore
from pyrocket.client.core.process_queue import Limits, ProcessQueue
from pyrocket.client.core.pulling import Pulling
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.consuming import Committed, ConsumerData, Heartbeat, MessageModel
from pyrocket.errors import InvalidInputError, TransportError
from pyrocket.message import MessageQueue, StoredMessage

_REPEAT_S = 1
_MIB = 1 << 20

_log = logging.getLogger(__name__)


class PollingCore:
    """Pulls the messages of assigned queues ahead of polls. Used by one event loop."""

    def __init__(
        self,
        config: ConsumerConfig,
        member: Member,
        transport: ClientTransport,
        offsets: OffsetStore,
        *,
        timestamp_ms: int,
    ) -> None:
        """`timestamp_ms` is the start for `ConsumeFrom.TIMESTAMP`, epoch milliseconds."""
        self._config, self._member = config, member
        self._transport, self._store = transport, offsets
        self._timestamp_ms = timestamp_ms
        self._held: dict[MessageQueue, ProcessQueue] = {}
        self._paused: set[MessageQueue] = set()
        self._pulls: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._arrived = asyncio.Event()
        self._brokers: set[str] = set()
        self._beating: asyncio.Task[None] | None = None
        size = config.pull_threshold_size_for_queue * _MIB
        limits = Limits(config.pull_threshold_for_queue, size, span=None)
        self._pulling = Pulling(
            config,
            transport,
            config.by_topic,
            Offsets(offsets),
            self,
            lambda held: limits,
            lambda held, next_offset: self._hold(held.queue, next_offset),
        )

    @property
    def assigned(self) -> list[MessageQueue]:
        """The assigned queues, sorted."""
        return sorted(self._held)

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Assign exactly these queues; those that are assigned already keep their positions.

        A new queue starts at the group's committed offset, or where `consume_from` defines. This
        client joins the group at the brokers of the queues. Raises GroupNotFoundError,
        InvalidInputError (DUPLICATE_CLIENT), TransportError.
        """
        for broker in sorted({queue.broker for queue in queues} - self._brokers):
            await self._join(broker)
            self._brokers.add(broker)
        if self._beating is None:
            self._beating = asyncio.ensure_future(self._stay())
        for queue in [*self._held]:
            if queue not in queues:
                self._release(queue)
        for queue in queues:
            if queue not in self._held:
                self._hold(queue, await self._start(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset. Raises InvalidInputError (QUEUE_NOT_ASSIGNED)."""
        self._require(queue)
        self._hold(queue, offset)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Exclude queues from polls; their positions remain."""
        for queue in queues:
            self._require(queue)
            self._paused.add(queue)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Include paused queues in polls again."""
        self._paused -= {*queues}
        self._arrived.set()

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that a poll returns from a queue."""
        return self._require(queue).commit_offset

    async def poll(self, timeout_s: float, max_messages: int) -> list[StoredMessage]:
        """Return messages as soon as there are any; an empty list after the timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        timer = loop.call_at(deadline, self._arrived.set)
        try:
            while not (found := self._take(max_messages)) and loop.time() < deadline:
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            timer.cancel()
        return found

    async def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None
    ) -> Mapping[MessageQueue, Committed]:
        """Commit these offsets, or the positions of all queues; return what the brokers have.

        The commit is repeated until the brokers have answered. A broker that was restarted since
        the last heartbeat does not know this client, which therefore joins its group again.
        """
        if offsets is None:
            offsets = {queue: held.commit_offset for queue, held in self._held.items()}
        try:
            return await self._commit_until_answered(offsets)
        except InvalidInputError as error:
            brokers = {queue.broker for queue in offsets} & self._brokers
            if error.code != "COMMIT_FENCED" or not brokers:
                raise
        for broker in sorted(brokers):
            await self._join(broker)
        return await self._commit_until_answered(offsets)

    async def _commit_until_answered(
        self, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, Committed]:
        replies: Mapping[MessageQueue, Committed] | None = None if offsets else {}
        while replies is None:
            replies = await self._commit(offsets)
        return replies

    async def _commit(
        self, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, Committed] | None:
        """Commit once; after a pause, return None if a broker has not answered."""
        try:
            return await self._store.save(offsets)
        except TransportError as error:
            _log.warning("a commit failed and is repeated: %s", error)
        await asyncio.sleep(_REPEAT_S)
        return None

    async def close(self) -> None:
        """Release all queues without committing, and leave the group; errors are logged."""
        for queue in [*self._held]:
            self._release(queue)
        if self._beating is not None:
            self._beating.cancel()
        for broker in sorted(self._brokers):
            call = self._transport.unregister(broker, self._member.client_id, self._config.group)
            await attempt(f"{broker} removes this member later", call)

    def add(self, held: ProcessQueue) -> None:
        """Do nothing: polls look at all queues."""

    def arrived(self, held: ProcessQueue) -> None:
        """Wake polls."""
        self._arrived.set()

    async def finished(self, held: ProcessQueue) -> None:
        """Return at once: polled messages belong to the caller."""

    async def stop(self, timeout_s: float) -> int:
        """Return 0: polled messages belong to the caller."""
        return 0

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(REBALANCE_S)
            for broker in sorted(self._brokers):
                await attempt(f"a heartbeat to {broker} is repeated", self._join(broker))

    async def _join(self, broker: str) -> None:
        data = ConsumerData(
            self._config.group,
            MessageModel.CLUSTERING,
            self._config.consume_from.value,
            self._config.by_topic,
        )
        beat = Heartbeat(self._member.client_id, self._member.incarnation, [data])
        await self._transport.heartbeat(broker, beat)

    def _take(self, max_messages: int) -> list[StoredMessage]:
        """Return waiting messages of one queue; the queues take turns."""
        for queue in [*self._held]:
            held = self._held[queue]
            if queue not in self._paused and held.has_waiting:
                found = held.take(max_messages)
                held.remove(found)
                self._held[queue] = self._held.pop(queue)  # It is the last one now.
                return found
        return []

    def _require(self, queue: MessageQueue) -> ProcessQueue:
        if (held := self._held.get(queue)) is None:
            raise InvalidInputError(
                f"{queue} is not assigned to this consumer.",
                remedy="Assign it first: consumer.assign([...]).",
                code="QUEUE_NOT_ASSIGNED",
            )
        return held

    def _hold(self, queue: MessageQueue, offset: int) -> None:
        self._release(queue)
        held = ProcessQueue(queue, offset, asyncio.get_running_loop().time())
        self._held[queue] = held
        self._pulls[held] = asyncio.ensure_future(self._pulling.run(held))

    def _release(self, queue: MessageQueue) -> None:
        if (held := self._held.pop(queue, None)) is not None:
            held.drop()
            self._pulls.pop(held).cancel()

    async def _start(self, queue: MessageQueue) -> int:
        known = await self._store.load(queue)
        at = start_offset(queue.topic, known, self._config.consume_from)
        if at is OffsetQuery.MAXIMUM:
            return (await self._transport.bounds(queue)).maximum
        if at is OffsetQuery.BY_TIMESTAMP:
            return await self._transport.offset_at(queue, self._timestamp_ms)
        assert isinstance(at, int)
        return at
