"""`ProcessQueue`: a queue that a consumer holds, and all that it knows of the queue.

Positions, attempts and pauses end with it: a consumer that takes the queue again starts with a new
one. Source: RocketMQ's `ProcessQueue`.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from pyrocket.values.consuming import GroupPosition
from pyrocket.values.message import MessageQueue, StoredMessage

LAPSE_S = 30
"""A queue counts as lost if its consumer did not know for so long that it is its own.

The broker keeps a lock twice as long, and a member four times as long.
"""


@dataclass(frozen=True)
class Limits:
    """When pulling pauses: the messages, bytes and span of offsets of one queue in memory.

    `span` is None for orderly consumers.
    """

    messages: int
    bytes: int
    span: int | None


class ProcessQueue:
    """One queue that a consumer holds. Used by one event loop.

    Attributes:
        start: The offset at which this consumer started.
        next_offset: The offset of the next pull.
        epoch: The epoch in which that was learned; see `GroupPosition`.
        stored: The committed offset as far as this consumer knows: that of its last commit, before
            the first commit the one at which it started.
        sent: The offset of the last commit, also of one without a reply.
        paused: Whether polls of a pull consumer omit the queue.
        dropped: Whether the queue was lost: results of running listeners no longer count.
        confirmed_s: When the consumer last knew that the queue is its own: the time of its last
            heartbeat or lock, on a clock that does not stop while the machine is suspended.
    """

    def __init__(self, queue: MessageQueue, start: GroupPosition, confirmed_s: float = 0) -> None:
        self.queue, (self.next_offset, self.epoch) = queue, start
        self.start = self.stored = self.sent = start.offset
        self.paused = self.dropped = False
        self.confirmed_s = confirmed_s
        self.attempts: Counter[int] = Counter()
        self.changed = asyncio.Event()
        self._in_process: OrderedDict[int, StoredMessage] = OrderedDict()
        self._waiting: deque[StoredMessage] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._in_process)

    def __contains__(self, message: StoredMessage) -> bool:
        return message.queue_offset in self._in_process

    @property
    def bytes(self) -> int:
        """The bytes of the bodies of all messages."""
        return self._bytes

    @property
    def has_waiting(self) -> bool:
        """Whether there are messages that no listener has."""
        return bool(self._waiting)

    @property
    def commit_offset(self) -> int:
        """The first offset that is not consumed yet: the one to commit."""
        return next(iter(self._in_process), self.next_offset)

    @property
    def position(self) -> GroupPosition:
        """What to commit."""
        return GroupPosition(self.commit_offset, self.epoch)

    def put(self, messages: Sequence[StoredMessage], next_offset: GroupPosition) -> None:
        """Add the messages of a pull, in order of their offsets."""
        for message in messages:
            self._in_process[message.queue_offset] = message
            self._bytes += len(message.body)
        self._waiting.extend(messages)
        self.next_offset, self.epoch = next_offset
        self._wake()

    def take(self, count: int) -> list[StoredMessage]:
        """Return the next messages for a listener, at most `count`."""
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def put_back(self, messages: Sequence[StoredMessage]) -> None:
        """Make messages that were taken the next ones again."""
        self._waiting.extendleft(reversed(messages))
        self._wake()

    def remove(self, messages: Collection[StoredMessage]) -> None:
        """Remove messages that are consumed or sent back; others are ignored."""
        for message in messages:
            self.attempts.pop(message.queue_offset, None)
            if self._in_process.pop(message.queue_offset, None) is not None:
                self._bytes -= len(message.body)
        self._wake()

    def correct(self, to: GroupPosition) -> None:
        """Drop the queue, which does not have the offset of the next pull.

        Its consumption continues at `to`, or at the first message before it that is not consumed.
        """
        first = next(iter(self._in_process), to.offset)
        self.drop()
        self._in_process.clear()
        self.next_offset, self.epoch = min(first, to.offset), to.epoch

    def drop(self) -> None:
        """Mark the queue as lost, and discard the messages that no listener has."""
        self.dropped = True
        self._waiting.clear()
        self._wake()

    def is_full(self, limits: Limits) -> bool:
        """Whether pulling has to pause."""
        if len(self._in_process) >= limits.messages or self._bytes >= limits.bytes:
            return True
        if limits.span is None or not self._in_process:
            return False
        return next(reversed(self._in_process)) - next(iter(self._in_process)) > limits.span

    def has_moved(self, committed: int | None) -> bool:
        """Whether another consumer, or a reset, has changed the committed offset."""
        if committed is None:
            return self.stored != self.start
        return committed not in (self.stored, self.sent)

    def failed(self, messages: Collection[StoredMessage]) -> None:
        """Count a failed attempt to consume messages in order."""
        self.attempts.update(message.queue_offset for message in messages)

    def with_attempts(self, message: StoredMessage) -> StoredMessage:
        """Return a message whose `reconsume_times` include the failed attempts of this consumer."""
        failed = self.attempts[message.queue_offset]
        if not failed:
            return message
        return replace(message, reconsume_times=message.reconsume_times + failed)

    async def wait_for_change(self) -> None:
        """Wait until messages are added, put back or removed, or the queue is dropped."""
        self.changed.clear()
        await self.changed.wait()

    def _wake(self) -> None:
        self.changed.set()
