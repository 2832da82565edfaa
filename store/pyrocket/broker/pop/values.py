"""Settings and results of POP consumption."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from pyrocket.services.consumption import MAX_BODY_BYTES, MAX_SCAN
from pyrocket.values.message import AppendResult, StoredMessage

Stored = Future[AppendResult]
"""Completes when the change is as durable as a sent message, or fails with the append's error."""


@dataclass(frozen=True, kw_only=True)
class PopSettings:
    """Settings of POP consumption.

    first_attempts: Deliveries of a message from its own queue; each later attempt delivers a copy
        from the group's retry topic. FIFO groups do not use the retry topic.
    max_in_flight: Maximum messages in flight of a group, and separately of its retry topic. At this
        limit, `receive` returns only messages that were delivered before.
    max_batch: Maximum messages of one `receive`.
    max_bytes: Maximum total size of the inflated bodies of one `receive`; the first message may be
        larger.
    max_scan: Maximum messages that one `receive` examines.
    commit_ms, snapshot_ms: Intervals at which a sweep saves the offsets, and saves a snapshot.
    """

    first_attempts: int = 3
    max_in_flight: int = 100_000
    max_batch: int = 32
    max_bytes: int = MAX_BODY_BYTES
    max_scan: int = MAX_SCAN
    commit_ms: int = 5_000
    snapshot_ms: int = 60_000


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A delivered message.

    message: The message, with the topic that it was sent to. The queue id and offset of a retry
        are those in the retry topic.
    attempt: The number of the delivery, starting at 1.
    handle: The receipt handle, for example for `ack`.
    invisible_until: A time of `Pop.now`.
    """

    message: StoredMessage
    attempt: int
    handle: str
    invisible_until: int


@dataclass(frozen=True)
class Received:
    """The messages of one `receive`; reply with them when `stored` has completed.

    has_more: Whether some messages were not examined. If so and `messages` is empty, receive again.
    """

    messages: tuple[Delivery, ...]
    stored: Stored
    has_more: bool = False


@dataclass(frozen=True)
class Acked:
    """The validity of each handle; reply when `stored` has completed.

    wakes: Whether other messages may have become available, so that the group's long polls on the
    topic must be woken.
    """

    valid: tuple[bool, ...]
    stored: Stored
    wakes: bool = False


@dataclass(frozen=True)
class Changed:
    """The handle that replaces an earlier one; reply when `stored` has completed.

    handle: None if the earlier handle was invalid.
    """

    handle: str | None
    stored: Stored


@dataclass(frozen=True)
class News:
    """A group and a topic in which messages may have become available.

    stored: When it completes, the group's long polls must be woken.
    """

    group: str
    topic: str
    stored: Stored = field(default_factory=lambda: nothing_to_store(), compare=False, repr=False)


@dataclass(frozen=True)
class Swept:
    """The result of a sweep.

    news: Groups and topics with messages that are visible again.
    moved, dead: Numbers of messages whose copies are being appended to retry and to dead-letter
        topics.
    next_ms: Time of `Pop.now` at which the next message becomes visible; None if none is invisible.
    """

    news: tuple[News, ...] = ()
    moved: int = 0
    dead: int = 0
    next_ms: int | None = None

    def plus(self, other: "Swept") -> "Swept":
        """Return the combined result."""
        times = [ms for ms in (self.next_ms, other.next_ms) if ms is not None]
        return Swept(
            self.news + other.news,
            self.moved + other.moved,
            self.dead + other.dead,
            min(times, default=None),
        )


@dataclass(frozen=True)
class DeliveryLag:
    """The lag of a group in one queue, with the messages in flight.

    end: The maximum offset of the queue.
    committed: The lowest offset that is not acked.
    in_flight: Number of messages in flight.
    ready: Number of messages that were never delivered.
    delay_ms: Age of the oldest message that is not acked.
    """

    end: int
    committed: int
    in_flight: int
    ready: int
    delay_ms: int

    @property
    def lag(self) -> int:
        """The number of messages that are not acked."""
        return self.in_flight + self.ready


Lags = Mapping[tuple[str, int], DeliveryLag]
"""By topic and queue id, including the group's retry topics."""


def nothing_to_store() -> Stored:
    """Return a completed future, for a call that changed nothing."""
    done: Stored = Future()
    done.set_result(AppendResult(0, 0, 0))
    return done
