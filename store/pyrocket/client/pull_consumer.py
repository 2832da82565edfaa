"""`PullConsumer`: its caller assigns queues, and polls their messages."""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from os import PathLike
from typing import TYPE_CHECKING, TypeVar, cast

from pyrocket.base.arguments import check_amount, check_whole
from pyrocket.base.clock import system_clock
from pyrocket.client.base import BaseClient
from pyrocket.client.config import ConsumerConfig, config_of
from pyrocket.client.consume_from import consume_timestamp
from pyrocket.client.core.offsets import BrokerOffsets
from pyrocket.client.core.polling import PollingCore
from pyrocket.client.server import server_of
from pyrocket.client.transport import Member
from pyrocket.values.consuming import Committed, Pull, Pulled, Subscription
from pyrocket.values.message import MessageQueue, QueueOffsets, StoredMessage

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyrocket.base.credentials import Credentials
    from pyrocket.client.config import ConsumerSettings

_T = TypeVar("_T")


class PullConsumer(BaseClient):
    """Reads the queues that its caller assigns, at the caller's pace.

    It starts in a `with` block, or by `start`. Safe to share between threads::

        with PullConsumer("reports", path="/data/store") as consumer:
            consumer.assign("orders")
            for message in consumer.poll():
                ...
            consumer.commit()

    It pulls messages of its queues before they are polled, up to the thresholds of
    `ConsumerConfig`. Nothing is committed unless the caller does so. All members of a group must be
    pull consumers, or all must be push consumers.

    All methods raise InvalidInputError (CLIENT_NOT_STARTED), StoreUnavailableError (CLIENT_CLOSED,
    CLIENT_FORKED), and TransportError if a broker cannot be reached.
    """

    def __init__(
        self,
        group: str,
        *,
        endpoint: str | None = None,
        endpoint_url: str | None = None,
        path: str | PathLike[str] | None = None,
        credentials: "Credentials | None" = None,
        instance: str = "",
        subscriptions: Mapping[str, Subscription | str] = {},
        **settings: "Unpack[ConsumerSettings]",
    ) -> None:
        """Check the arguments; nothing is opened before `start`.

        group: The consumer group.
        endpoint: The addresses of brokers or name servers, separated by commas.
        endpoint_url: The URL of a text with such addresses, which is read every 2 minutes.
        path: The directory of a store, which is opened in this process.
        credentials: For the endpoint: TLS and the user.
        instance: The name in the client id: distinguishes the consumers of one process.
        subscriptions: Topic → tags separated by `||`, or `Subscription(sql, "SQL92")`; of topics
            that are not named, all messages are read.
        settings: See `ConsumerConfig`.

        Raises InvalidInputError: CONSUMER_CONFIG, CLIENT_SERVER, CLIENT_NAME; GroupNameError,
        TopicNameError.
        """
        server = server_of(endpoint, path, credentials, endpoint_url=endpoint_url)
        super().__init__(server, instance)
        self._config = config_of(
            ConsumerConfig, type(self), group=group, subscriptions=subscriptions, **settings
        )
        self._core: PollingCore

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be read, sorted. Raises TopicNotFoundError."""
        return sorted(self._started.run(self._instance.routes.get(topic, fresh=True)).readable)

    def assign(self, queues: Collection[MessageQueue] | str) -> None:
        """Read exactly these queues; those that are assigned already keep their positions.

        The name of a topic stands for all its readable queues.

        A new queue starts at the offset that the group has committed, or else where `consume_from`
        defines. Raises TopicNotFoundError, QueueNotFoundError, GroupNotFoundError,
        InvalidInputError (DUPLICATE_CLIENT).
        """
        self._check_started()
        wanted = self.queues(queues) if isinstance(queues, str) else queues
        self._instance.run(self._core.assign([*wanted]))

    def assigned(self) -> list[MessageQueue]:
        """Return the assigned queues, sorted."""
        self._check_started()
        return self._core.assigned

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue to read a queue at an offset; messages polled from now on begin there.

        Raises InvalidInputError (QUEUE_NOT_ASSIGNED). An offset that the queue does not have is
        replaced by its nearest one.
        """
        check_whole("offset", offset)
        self._in_loop(lambda: self._core.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue with the first message that the queue still has. Raises as `seek` does."""
        self.seek(queue, self.bounds(queue).minimum)

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue with the next message that is sent to the queue. Raises as `seek` does."""
        self.seek(queue, self.bounds(queue).maximum)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Exclude queues from polls; their positions remain. Raises InvalidInputError."""
        self._in_loop(lambda: self._core.pause([*queues]))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Include paused queues in polls again."""
        self._in_loop(lambda: self._core.resume([*queues]))

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that is polled from a queue."""
        return self._in_loop(lambda: self._core.position(queue))

    def poll(self, timeout_s: float = 1.0, max_messages: int = 32) -> list[StoredMessage]:
        """Return messages of one queue as soon as there are any; an empty list after the timeout.

        The queues take turns.
        """
        check_amount("timeout_s", timeout_s)
        check_whole("max_messages", max_messages, 1, 1_000_000)
        return self._started.run(self._core.poll(timeout_s, max_messages))

    def pull(
        self, queue: MessageQueue, offset: int, *, max_messages: int = 32, hold_ms: int = 0
    ) -> Pulled:
        """Make one pull, which changes no positions; return messages and the queue's offsets.

        hold_ms: How long the broker waits for a message if there is none.

        Raises GroupNotFoundError, QueueNotFoundError.
        """
        transport = self._started.transport
        subscription = self._config.by_topic.get(queue.topic, Subscription())
        request = Pull(queue, self._config.group, offset, subscription, max_messages, hold_ms)
        return self._instance.run(transport.pull(request))

    def bounds(self, queue: MessageQueue) -> QueueOffsets:
        """Return the minimum and maximum offset of a queue. Raises QueueNotFoundError."""
        return self._started.run(self._instance.transport.bounds(queue))

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the first message stored at or after a time (epoch ms)."""
        return self._started.run(self._instance.transport.offset_at(queue, time_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the next offset that the group has committed for a queue, if any."""
        return self._started.run(self._instance.transport.committed(self._config.group, queue))

    def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None
    ) -> Mapping[MessageQueue, Committed]:
        """Commit offsets; by default, those of all messages that were polled.

        Returns the minimum, maximum and next offset of each queue. Repeats the commit until the
        brokers have answered. A commit never moves an offset back. Raises InvalidInputError
        (COMMIT_FENCED) if this client is no longer a member of its group.
        """
        return self._started.run(self._core.commit(offsets))

    def commit_async(
        self,
        offsets: Mapping[MessageQueue, int] | None = None,
        callback: "Callable[[Future[Mapping[MessageQueue, Committed]]], None] | None" = None,
    ) -> "Future[Mapping[MessageQueue, Committed]]":
        """Commit without waiting; return a future of the result of `commit`.

        callback: Called by the event loop with the future when it is done; must not block.
        """
        done = self._started.submit(self._core.commit(offsets))
        if callback is not None:
            done.add_done_callback(callback)
        return done

    def _begin(self) -> None:
        self._member = member = self._instance.join(self._config.group)
        self._instance.run(self._create_core(member))

    async def _create_core(self, member: Member) -> None:
        config, transport = self._config, self._instance.transport
        self._core = PollingCore(
            config,
            member,
            transport,
            BrokerOffsets(transport, config.group, member),
            timestamp_ms=consume_timestamp(config.consume_timestamp, system_clock()),
        )

    def _end(self) -> None:
        try:
            self._instance.run(self._core.close())
        finally:
            self._instance.leave(self._config.group, cast(Member, self._member))
