"""Settings and results of POP consumption."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from pyrocket.message import AppendResult, StoredMessage
from pyrocket.services.consumption import MAX_BODY_BYTES, MAX_SCAN

Stored = Future[AppendResult]
"""Done when the change is as durable as a message that is sent; it has the error otherwise."""


@dataclass(frozen=True, kw_only=True)
class PopSettings:
    """How messages are handed out.

    first_attempts: a message is delivered so often from its own queue; each later attempt is a
        message of the group's retry topic. FIFO groups never use the retry topic.
    max_in_flight: of a group, and as many in its retry topic; with more, `receive` returns only
        messages that were received before.
    max_batch: messages of one `receive`.
    max_bytes: of their bodies, inflated; a first message may be longer.
    max_scan: messages that one `receive` looks at for some that it wants.
    start_at_end: whether a group without offsets starts at the end of queues instead of the start.
    commit_ms, snapshot_ms: intervals in which a sweep saves offsets, and the whole state.
    """

    first_attempts: int = 3
    max_in_flight: int = 100_000
    max_batch: int = 32
    max_bytes: int = MAX_BODY_BYTES
    max_scan: int = MAX_SCAN
    start_at_end: bool = False
    commit_ms: int = 5_000
    snapshot_ms: int = 60_000


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One message that was handed out.

    message: with the topic that it was sent to. A message that comes from the retry topic has that
        topic's queue id and offset.
    attempt: from 1 on. handle: for `ack` and the like. invisible_until: epoch ms.
    """

    message: StoredMessage
    attempt: int
    handle: str
    invisible_until: int


@dataclass(frozen=True)
class Received:
    """The messages of one `receive`; reply with them once `stored` is done.

    has_more: whether to receive again at once if there are no messages: it has not looked at all
    that there are.
    """

    messages: tuple[Delivery, ...]
    stored: Stored
    has_more: bool = False


@dataclass(frozen=True)
class Acked:
    """Which handles were valid, in their order; reply once `stored` is done.

    wakes: whether messages may have become available, so that the group's long polls on the topic
    are to be woken.
    """

    valid: tuple[bool, ...]
    stored: Stored
    wakes: bool = False


@dataclass(frozen=True)
class Changed:
    """The handle that replaces an earlier one, which is invalid now; reply once `stored` is done.

    The handle is None if the earlier one was invalid. wakes: as in `Acked`.
    """

    handle: str | None
    stored: Stored
    wakes: bool = False


@dataclass(frozen=True)
class News:
    """Messages may have become available to a group in a topic: wake its long polls.

    stored: When it is done.
    """

    group: str
    topic: str
    stored: Stored = field(default_factory=lambda: nothing_to_store(), compare=False, repr=False)


@dataclass(frozen=True)
class Swept:
    """What a sweep did.

    news: where messages have become visible again. moved, dead: messages whose copies for retry and
    dead-letter topics are being appended. next_ms: when the next message becomes visible, epoch ms;
    None if none is in flight.
    """

    news: tuple[News, ...] = ()
    moved: int = 0
    dead: int = 0
    next_ms: int | None = None

    def plus(self, other: "Swept") -> "Swept":
        """Return both together."""
        times = [ms for ms in (self.next_ms, other.next_ms) if ms is not None]
        return Swept(
            self.news + other.news,
            self.moved + other.moved,
            self.dead + other.dead,
            min(times, default=None),
        )


@dataclass(frozen=True)
class QueueLag:
    """How far a group is in one queue.

    end: of the queue. committed: the lowest offset not acked. in_flight: delivered and not acked.
    ready: never delivered. lag: both together. delay_ms: since the first of these was stored.
    """

    end: int
    committed: int
    in_flight: int
    ready: int
    delay_ms: int

    @property
    def lag(self) -> int:
        """Messages that are not acked."""
        return self.in_flight + self.ready


Lags = Mapping[tuple[str, int], QueueLag]
"""By topic and queue id; those of the group's retry topic are included."""


def nothing_to_store() -> Stored:
    """Return a future that is done: nothing was changed."""
    done: Stored = Future()
    done.set_result(AppendResult(0, 0, 0))
    return done
