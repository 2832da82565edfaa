"""Reads a range of a queue by many pulls at once.

A broker answers a pull with few messages: 32 from memory and 8 from disk by default, at most 256
KiB. So the range is cut into windows, and the pulls of several windows are under way at the same
time. A window whose answer ends early is continued by another pull. Source:
`DefaultMessageStore.getMessage`, `isTheBatchFull`.
"""

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from pyrocket.base.clock import Pauses
from pyrocket.errors import BrokerBusyError, OffsetOutOfRangeError, TransportError
from pyrocket.remoting.calls import ResponseCode
from pyrocket.remoting.connection import ConnectionPool, RemotingConnection
from pyrocket.remoting.requests import READER_GROUP, PullAnswer, pull
from pyrocket.values.message import MessageQueue, QueueRange

IN_FLIGHT = 16
"""How many pulls are under way: fewer leave the broker idle while a client decodes."""

_WINDOW = 32
"""The messages of an answer by default: `maxTransferCountOnMessageInMemory`."""

_HELD_BYTES = 8 << 20
"""With more bytes in memory, only the first window goes on."""

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 1.0


@dataclass(frozen=True)
class PullSettings:
    """How ranges are read.

    Attributes:
        group: The group in whose name messages are pulled.
        tags: `A || B` lets the broker select messages by the hashes of their tags.
        seconds: The longest wait for an answer, and for progress in a window.
        in_flight: The number of pulls that are under way at the same time.
        stays: Whether to read on where slaves are suggested.
    """

    group: str = READER_GROUP
    tags: str = "*"
    seconds: float = 30.0
    in_flight: int = IN_FLIGHT
    stays: bool = False


@dataclass
class Window:
    """The messages in [start, end) of a queue, as far as they have been pulled.

    Attributes:
        at: Where the next pull begins: all messages before it were examined.
        records: The records of the answers. The last answer may have records from `end` on.
        is_asked: Whether a pull is under way.
        is_held: Whether a pull made no progress, so that it goes on after the windows before it.
    """

    start: int
    end: int
    at: int
    records: list[memoryview] = field(default_factory=list)
    is_asked: bool = False
    is_held: bool = False

    @property
    def is_done(self) -> bool:
        """Whether all messages were examined."""
        return self.at >= self.end


def windows(
    server: ConnectionPool, part: QueueRange, settings: PullSettings = PullSettings()
) -> Generator[Window, None, None]:
    """Yield the windows of a range in order, each when it is done.

    Ends early if the server suggests to go on at one of its slaves.

    The connection is used by no one else until the iterator is closed. Pulls go on while a caller
    works with a window; at most `in_flight` windows are in memory.

    Raises OffsetOutOfRangeError if messages were deleted; TransportError if the connection fails,
    or with PULL_STALLED if the broker makes no progress; errors of the broker.
    """
    with server.connection(settings.seconds) as connection:
        yield from _Reader(server, connection, part, settings).read()


def out_of_range(
    queue: MessageQueue, minimum: int, maximum: int, wanted: object
) -> OffsetOutOfRangeError:
    """Return the error for messages outside of the range that a queue has now."""
    return OffsetOutOfRangeError(
        f"{queue} of the broker {queue.broker} has the messages [{minimum}, {maximum});"
        f" {wanted} was requested.",
        remedy="The messages have expired, or the broker has lost them.",
    )


class _Reader:
    """Reads one range over one connection."""

    def __init__(
        self,
        server: ConnectionPool,
        connection: RemotingConnection,
        part: QueueRange,
        settings: PullSettings,
    ) -> None:
        self._server, self._connection = server, connection
        self._queue, self._settings = part.queue, settings
        self._next, self._end = part.start, part.end
        self._open: deque[Window] = deque()
        self._asked: dict[int, Window] = {}
        self._held_bytes = 0
        self._pauses: Pauses | None = None
        topic, _, queue_id = part.queue
        self._call = pull(topic, queue_id, 0, 0, settings.group, settings.tags)

    def read(self) -> Iterator[Window]:
        """Yield the windows in order."""
        self._send()
        while self._open:
            first = self._open[0]
            if first.is_done:
                self._open.popleft()
                self._held_bytes -= sum(map(len, first.records))
                self._send()
                yield first
                continue
            answer = self._connection.receive(self._settings.seconds)
            window = self._asked.pop(answer.opaque)
            window.is_asked = False
            try:
                self._take(window, self._call.value(answer, self._connection.place))
            except BrokerBusyError as error:
                self._wait(window, str(error))
            if not window.is_done:
                self._send()

    def _send(self) -> None:
        """Go on with the windows that may go on, and open new ones.

        New windows are opened as soon as the next answer has to be waited for; otherwise several at
        once, which costs less.
        """
        has_room, most = self._held_bytes < _HELD_BYTES, self._settings.in_flight
        is_time = 2 * len(self._open) <= most or not self._connection.has_received
        if is_time and (has_room or not self._open):
            while len(self._open) < most and self._next < self._end:
                end = min(self._next + _WINDOW, self._end)
                self._open.append(Window(self._next, end, self._next))
                self._next = end
        wanted = [
            row
            for row in self._open
            if not (row.is_asked or row.is_done)
            and (row is self._open[0] or (has_room and not row.is_held))
        ]
        if not wanted:
            return
        request = self._call.request
        places = [
            {"queueOffset": str(row.at), "maxMsgNums": str(row.end - row.at)} for row in wanted
        ]
        requests = [request._replace(fields={**request.fields, **place}) for place in places]
        numbers = self._connection.send(requests, self._settings.seconds)
        self._asked.update(zip(numbers, wanted, strict=True))
        for row in wanted:
            row.is_asked = True

    def _take(self, window: Window, answer: PullAnswer) -> None:
        """Take the messages of an answer."""
        self._server.suggested_id = answer.suggested_id
        if answer.suggested_id in self._server.slaves and not self._settings.stays:
            self._end = self._next
        has_moved = answer.code == ResponseCode.PULL_OFFSET_MOVED
        if has_moved and window is self._open[0]:
            raise out_of_range(self._queue, answer.minimum, answer.maximum, window.at)
        if has_moved or answer.next_offset <= window.at:
            # A slave that lacks the message, or must not be read, suggests the master.
            is_elsewhere = self._server.broker_id not in (0, answer.suggested_id)
            reason = f"the queue has [{answer.minimum}, {answer.maximum})"
            self._wait(window, reason, is_elsewhere=is_elsewhere)
            return
        if answer.code == ResponseCode.SUCCESS:
            window.records.append(answer.records)
            self._held_bytes += len(answer.records)
        window.at = answer.next_offset
        if window is self._open[0]:
            self._pauses = None

    def _wait(self, window: Window, reason: str, *, is_elsewhere: bool = False) -> None:
        """Pause before the first window is pulled again; raise TransportError if it has stalled.

        With `is_elsewhere`, it has: the server says that another one has the message.

        What is wrong with another window is reported after the messages before it.
        """
        window.is_held = True
        if window is not self._open[0]:
            return
        seconds = self._settings.seconds
        self._pauses = self._pauses or Pauses(seconds, first=_FIRST_PAUSE_S, last=_LAST_PAUSE_S)
        if is_elsewhere or not self._pauses.wait():
            raise TransportError(
                f"{self._connection.place} has not answered with the message {window.at} of"
                f" {self._queue}{'' if is_elsewhere else f' for {seconds:g} s'}: {reason}.",
                remedy="A slave that is behind or has `slaveReadEnable=false`, and storage in tiers"
                " that fails, answer so; see the log of the broker.",
                repeat_is_safe=True,
                code="PULL_STALLED",
            )
