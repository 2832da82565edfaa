"""`Pop`: the state of all groups that receive from one store."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pyrocket.broker.pop.values import (
    Acked,
    Changed,
    Lags,
    PopSettings,
    Received,
    Swept,
)
from pyrocket.engine.received import ReceivedRecords
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.message import AppendResult
from pyrocket.store import Store

Append = Callable[[ReceivedRecords], "Future[AppendResult]"]
"""`AppendQueue.put`: appends records with the next group append."""


class Pop:
    """Hands out the messages of one store to consumer groups; safe to share between threads.

    No method waits for the disk: what it changes is put in the append queue, and the future
    `stored` of its result is done when that is durable (with asyncio: `wrap_future`). The state is
    changed at once, so a message is never handed out twice meanwhile. All times are those of the
    store's clock.
    """

    def __init__(self, store: Store, append: Append, settings: PopSettings | None = None) -> None:
        """Recover the state: the last snapshot, and the records after it."""
        raise NotImplementedError

    def receive(
        self,
        group: str,
        topic: str,
        *,
        queue_id: int | None = None,
        max_messages: int = 32,
        invisible_ms: int = 60_000,
        where: MessageFilter | None = None,
        attempt_id: str = "",
    ) -> Received:
        """Hand out messages of one queue or of all, at once; none if there are none.

        Due retries first, then messages that have become visible again, then new ones; queues take
        turns. Messages that `where` does not want are acked. Each message is invisible to the group
        for `invisible_ms`. In a FIFO group a message waits until all earlier ones with its sharding
        key are acked, and the same `attempt_id` returns the same messages again.

        Raises GroupNotFoundError, TopicNotFoundError, StorePermissionError if the group may not
        consume, BrokerBusyError.
        """
        raise NotImplementedError

    def ack(self, group: str, topic: str, handles: Sequence[str]) -> Acked:
        """Ack messages. A handle is invalid once its message is visible again.

        Raises BrokerBusyError; nothing is changed then.
        """
        raise NotImplementedError

    def change_invisible(self, group: str, topic: str, handle: str, invisible_ms: int) -> Changed:
        """Make a message visible so long from now (0: at once), and return its new handle.

        Raises BrokerBusyError.
        """
        raise NotImplementedError

    def extend(self, group: str, topic: str, handles: Sequence[str], invisible_ms: int) -> Acked:
        """Keep messages invisible for so long from now; their handles stay valid.

        For messages that the broker renews for its clients, and for those that it releases early
        because a client is gone. Raises BrokerBusyError.
        """
        raise NotImplementedError

    def forward_to_dlq(self, group: str, topic: str, handle: str) -> Acked:
        """Move a message to the group's dead-letter topic. Raises BrokerBusyError."""
        raise NotImplementedError

    def sweep(self) -> Swept:
        """Do what is due: call it once a second or so, and at `Swept.next_ms`.

        Moves messages with too many attempts to retry and dead-letter topics, saves offsets and
        snapshots at their intervals, and takes over offsets that were committed or reset meanwhile.
        """
        raise NotImplementedError

    def arrivals(self) -> list[tuple[str, int]]:
        """Return topic and queue id of the queues that got messages since the last call. Cheap.

        Pass them to `Holds.arrived`. Call it after each append and every few milliseconds: the
        delay service appends, too.
        """
        raise NotImplementedError

    def snapshot(self) -> None:
        """Save offsets and the whole state, so that the records before are no longer needed."""
        raise NotImplementedError

    def lag(self, group: str, topic: str) -> Lags:
        """Return how far a group is in each queue of a topic, and in its retry topic."""
        raise NotImplementedError

    def drop(self, group: str) -> None:
        """Forget a group that was deleted."""
        raise NotImplementedError

    def close(self) -> None:
        """Save what a later start needs. The append queue must still be open."""
        raise NotImplementedError
