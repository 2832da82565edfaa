"""The messages of a queue that a consumer has pulled and not yet consumed: `ProcessQueue`.

Source: RocketMQ's `ProcessQueue`.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyrocket.message import MessageQueue, StoredMessage


@dataclass(frozen=True)
class Limits:
    """When pulling pauses: the messages, bytes and span of offsets of one queue in memory.

    `span` is None for orderly consumers.
    """

    messages: int
    bytes: int
    span: int | None


class ProcessQueue:
    """The pulled messages of one queue that a consumer holds. Used by one event loop.

    Attributes:
        next_offset: The offset of the next pull.
        dropped: Whether the queue was lost: results of running listeners no longer count.
        pulled_s: The time of the last pull, on the event loop's clock.
        locked_s: The time of the last granted lock, for orderly consumers.
    """

    def __init__(self, queue: MessageQueue, next_offset: int, now_s: float) -> None:
        self.queue, self.next_offset = queue, next_offset
        self.dropped = False
        self.pulled_s = self.locked_s = now_s
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

    def put(self, messages: Sequence[StoredMessage], next_offset: int) -> None:
        """Add the messages of a pull, in order of their offsets."""
        for message in messages:
            self._in_process[message.queue_offset] = message
            self._bytes += len(message.body)
        self._waiting.extend(messages)
        self.next_offset = next_offset
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
            if self._in_process.pop(message.queue_offset, None) is not None:
                self._bytes -= len(message.body)
        self._wake()

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

    async def wait_for_change(self) -> None:
        """Wait until messages are added, put back or removed, or the queue is dropped."""
        self.changed.clear()
        await self.changed.wait()

    def _wake(self) -> None:
        self.changed.set()
