"""The core of a pull consumer: its caller assigns queues, and polls their messages.

Source: `DefaultLitePullConsumerImpl`.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from pyrocket.base.failures import Failures
from pyrocket.client.config import ConsumerConfig
from pyrocket.client.core.membership import HEARTBEAT_S, Membership
from pyrocket.client.core.offsets import OffsetStore
from pyrocket.client.core.process_queue import Limits, ProcessQueue
from pyrocket.client.core.pulling import ListenerCall, Pulling
from pyrocket.client.core.tasks import SideBySide, Tasks
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.errors import InvalidInputError, TransportError
from pyrocket.values.consuming import Committed, GroupPosition
from pyrocket.values.message import MessageQueue, StoredMessage

_REPEAT_S = 1
_LEAVE_S = 5
_MIB = 1 << 20

_log = logging.getLogger(__name__)


class PollingCore(ListenerCall):
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
        self._store, self.failures = offsets, Failures()
        self._tasks = Tasks(self.failures)
        self._membership = Membership(
            config,
            member,
            transport,
            offsets,
            topics=lambda: {queue.topic for queue in self._wanted},
            subscriptions=config.by_topic,
            timestamp_ms=timestamp_ms,
            failures=self.failures,
            tasks=self._tasks,
            boot_s=asyncio.get_running_loop().time,
            confirmed=self._confirm,
        )
        self._wanted: list[MessageQueue] = []
        self._held: dict[MessageQueue, ProcessQueue] = {}
        self._first_epochs: dict[MessageQueue, int | None] = {}
        self._pulls: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._arrived, self._is_staying = asyncio.Event(), False
        size = config.pull_threshold_size_for_queue * _MIB
        limits = Limits(config.pull_threshold_for_queue, size, span=None)
        self._pulling = Pulling(
            config,
            transport,
            config.by_topic,
            self.failures,
            self,
            lambda held: limits,
            lambda held: self._move(held, GroupPosition(held.next_offset, held.epoch)),
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
        before, self._wanted = self._wanted, [*queues]
        try:
            brokers = {queue.broker for queue in queues}
            self._membership.brokers |= brokers
            await asyncio.gather(*map(self._join, sorted(brokers)))
            starts = {q: await self._store.start(q) for q in queues if q not in self._held}
        except BaseException:
            self._wanted = before
            raise
        for queue in [*self._held]:
            if queue not in queues:
                self._release(queue)
        for queue, start in starts.items():
            self._first_epochs[queue] = start.epoch
            self._hold(queue, start)
        if not self._is_staying:
            self._is_staying = True
            self._tasks.repeat("heartbeats are repeated", self._beat, every_s=HEARTBEAT_S)

    async def _join(self, broker: str) -> None:
        """Join the group at a broker, unless it knows all topics of this client's queues."""
        topics = {queue.topic for queue in self._wanted if queue.broker == broker}
        if not all(self._membership.has_joined(broker, topic) for topic in topics):
            await self._membership.join(broker)

    async def _beat(self) -> None:
        await self._membership.beat({*self._membership.brokers})

    async def _confirm(self, broker: str, was_member: bool, asked_s: float) -> None:
        """Do nothing: the caller decides which queues this client holds."""

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset. Raises InvalidInputError (QUEUE_NOT_ASSIGNED)."""
        held = self._require(queue)
        self._move(held, GroupPosition(offset, held.epoch))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Exclude queues from polls; their positions remain."""
        for queue in queues:
            self._require(queue).paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Include paused queues in polls again."""
        for queue in queues:
            self._require(queue).paused = False
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
            while not (messages := self._take(max_messages)) and loop.time() < deadline:
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            timer.cancel()
        return messages

    async def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None
    ) -> Mapping[MessageQueue, Committed]:
        """Commit these offsets, or the positions of all queues; return what the brokers have.

        The commit is repeated until the brokers have answered. A broker that was restarted since
        the last heartbeat does not know this client, which therefore joins its group again.
        """
        if offsets is None:
            positions = {queue: held.position for queue, held in self._held.items()}
        else:
            positions = {queue: self._learned(queue, offsets[queue]) for queue in offsets}
        try:
            return await self._commit_until_answered(positions)
        except InvalidInputError as error:
            brokers = {queue.broker for queue in positions} & self._membership.brokers
            if error.code != "COMMIT_FENCED" or not brokers:
                raise
        for broker in sorted(brokers):
            await self._membership.join(broker)
        return await self._commit_until_answered(positions)

    def _learned(self, queue: MessageQueue, offset: int) -> GroupPosition:
        """Return the caller's offset, which may be after the position: of messages that it polled
        before the queue was truncated.
        """
        if (held := self._held.get(queue)) is None:
            return GroupPosition(offset)
        is_polled = offset <= held.commit_offset
        return GroupPosition(offset, held.epoch if is_polled else self._first_epochs[queue])

    async def _commit_until_answered(
        self, positions: Mapping[MessageQueue, GroupPosition]
    ) -> Mapping[MessageQueue, Committed]:
        while positions:
            try:
                return await self._store.save(positions)
            except TransportError as error:
                _log.warning("a commit failed and is repeated: %s", error)
            await asyncio.sleep(_REPEAT_S)
        return {}

    async def close(self) -> None:
        """Release all queues without committing, and leave the group; errors are logged."""
        for queue in [*self._held]:
            self._release(queue)
        self._tasks.cancel()
        leaving = SideBySide(self._tasks)
        brokers = self._membership.brokers
        await leaving.run(brokers, self._membership.leave, patience_s=_LEAVE_S)

    def arrived(self, held: ProcessQueue) -> None:
        """Wake polls."""
        self._arrived.set()

    def _take(self, max_messages: int) -> list[StoredMessage]:
        """Return waiting messages of one queue; the queues take turns."""
        for queue in [*self._held]:
            held = self._held[queue]
            if held.has_waiting and not held.paused:
                messages = held.take(max_messages)
                held.remove(messages)
                self._held[queue] = self._held.pop(queue)  # It is the last one now.
                return messages
        return []

    def _require(self, queue: MessageQueue) -> ProcessQueue:
        if (held := self._held.get(queue)) is None:
            raise InvalidInputError(
                f"{queue} is not assigned to this consumer.",
                remedy="Assign it first: consumer.assign([...]).",
                code="QUEUE_NOT_ASSIGNED",
            )
        return held

    def _move(self, held: ProcessQueue, to: GroupPosition) -> None:
        """Continue to read a queue at another offset; a pause remains."""
        self._release(held.queue)
        self._hold(held.queue, to).paused = held.paused

    def _hold(self, queue: MessageQueue, start: GroupPosition) -> ProcessQueue:
        self._held[queue] = held = ProcessQueue(queue, start)
        self._pulls[held] = self._tasks.start(self._pulling.run(held))
        return held

    def _release(self, queue: MessageQueue) -> None:
        if (held := self._held.pop(queue, None)) is not None:
            held.drop()
            self._pulls.pop(held).cancel()
