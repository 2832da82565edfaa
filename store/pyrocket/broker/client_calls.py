"""The calls of `pyrocket.client`'s producers and consumers.

Clients of the same process make them directly, all others over `pyrocket.v1.Clients`.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from pyrocket.broker.broker import Broker
from pyrocket.broker.half_checks import MAX_QUESTIONS
from pyrocket.broker.sends import Sent
from pyrocket.broker.work import Answers, Work
from pyrocket.engine.message_encoder import Origin
from pyrocket.errors import MessageError
from pyrocket.formats.compression import COMPRESSED_FLAGS, Inflation
from pyrocket.formats.record import STORE_HOST, Host
from pyrocket.metadata.groups import check_group_name
from pyrocket.services.transactions.check_service import CheckTarget
from pyrocket.services.transactions.half_messages import CheckRequest
from pyrocket.store import sender_of
from pyrocket.values.admin import TopicConfig
from pyrocket.values.consuming import Locked
from pyrocket.values.message import Message, MessageQueue, OutgoingMessage, SendResult
from pyrocket.values.transactions import LocalTransactionState, Undecided

Notify = Callable[[Undecided | None], bool]
"""Takes a half message to be decided, or None for a change of a group; returns whether the client
accepts it. Called by any thread, and must not block.
"""


class ClientCalls:
    """The calls to one broker, and what no part of it has. Safe to share between threads."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._consumers = broker, broker.consumers

    def table(self) -> Mapping[Work, Answers]:
        """Return what answers each call, by the kind of its work."""
        consumers = self._consumers
        reads: Answers = {
            "StartOffset": consumers.start_offset,
            "LeaveGroup": consumers.leave,
            "GroupMembers": self.group_members,
            "CheckFilter": consumers.check_filter,
            "UnlockQueues": consumers.unlock,
            "PullQueue": consumers.pulls.pull_queue,
            "CommittedOffset": consumers.committed,
        }
        writes: Answers = {
            "CreateMissing": self.create_missing,
            "SendHalf": self._broker.confirmations.holding(self.send_half),
            "EndHalf": self.end_half,
            "JoinGroups": consumers.heartbeat,
            "GroupStarts": consumers.group_starts,
            "LockQueues": self.lock_queues,
            "CommitOffsets": consumers.commit,
            "SendBack": consumers.send_back,
        }
        return {Work.READ: reads, Work.WRITE: writes, Work.SEND: {"SendMessages": self.send}}

    def send(
        self,
        queue: MessageQueue,
        messages: Sequence[OutgoingMessage],
        born_host: Host | None = None,
    ) -> "Future[list[SendResult]]":
        """Append all messages to one queue, or none.

        born_host: The address of a client of another process, whose bodies are checked.

        Raises MessageError, TopicNotFoundError, BrokerBusyError.
        """
        self._check_bodies(messages, born_host)
        sent = [Sent(_message(message, queue), _origin(message, born_host)) for message in messages]
        return self._broker.sends.send(sent)

    def create_missing(self, name: str) -> TopicConfig:
        """Return a topic; a missing one is created if the store's `auto_create_topics` is set.

        Raises TopicNotFoundError, TopicNameError, MessageError (TOPIC_NOT_WRITABLE).
        """
        sender_of(self._broker.store).route(name)
        return self._broker.store.topics.get(name)

    def send_half(
        self,
        group: str,
        queue: MessageQueue,
        message: OutgoingMessage,
        immunity_s: int | None,
        born_host: Host | None = None,
    ) -> Undecided:
        """Store a half message of a producer group.

        immunity_s: Time in which the group is not asked about it; None for the broker's default.
        born_host: As in `send`.

        Raises GroupNameError, MessageError, TopicNotFoundError.
        """
        self._check_bodies([message], born_host)
        check_group_name(group)
        store, half = self._broker.store, _message(message, queue)
        request, status = store.transactions.send_half(
            group, half, immunity_s, _origin(message, born_host)
        )
        return Undecided(store.broker_name, request.half, request.message, status)

    def _check_bodies(self, messages: Sequence[OutgoingMessage], born_host: Host | None) -> None:
        if born_host is not None:
            inflation = Inflation(self._broker.store.config.max_message_bytes)
            for message in messages:
                _check_body(message, inflation)

    def end_half(
        self, group: str, topic: str, transaction_id: str, state: LocalTransactionState
    ) -> "Future[None] | None":
        """Commit or roll back; see `BrokerTransactions.end`. A commit waits for a replica."""
        is_commit = state is LocalTransactionState.COMMIT
        end = self._broker.confirmations.holding(self._end) if is_commit else self._end
        return end(group, topic, transaction_id, state)

    def _end(
        self, group: str, topic: str, transaction_id: str, state: LocalTransactionState
    ) -> None:
        self._broker.transactions.end(topic, transaction_id, state, group)

    def group_members(self, group: str) -> list[str]:
        """Return the ids of a group's live members."""
        return self._consumers.members.ids(group, self._consumers.ages())

    def lock_queues(self, group: str, client_id: str, queues: Sequence[MessageQueue]) -> Locked:
        """Lock queues; see `Consumers.lock`."""
        granted = self._consumers.lock(group, client_id, queues)
        return Locked([*granted], [queue for queue in granted if granted[queue]])

    def watch(
        self,
        notify: Notify,
        group: str,
        producer_group: str,
        room: Callable[[], int] = lambda: MAX_QUESTIONS,
    ) -> Callable[[], None]:
        """Notify of changes of a group, or of half messages that a producer group shall decide.

        room: Returns the number of further half messages that the producer accepts.

        Returns a function that ends the notifications.
        """
        if not producer_group:
            return self._consumers.members.watch(lambda name: name == group and notify(None))
        broker, transactions = self._broker.store.broker_name, self._broker.store.transactions

        def ask(request: CheckRequest) -> bool:
            return notify(Undecided(broker, request.half, request.message))

        producer = CheckTarget(producer_group, room, ask)
        transactions.add(producer)
        return partial(transactions.remove, producer)


def _message(outgoing: OutgoingMessage, queue: MessageQueue) -> Message:
    return replace(outgoing.message, topic=queue.topic, body=outgoing.body, queue_id=queue.queue_id)


def _origin(outgoing: OutgoingMessage, born_host: Host | None) -> Origin:
    return Origin(
        unique_id=outgoing.unique_id,
        born_timestamp=outgoing.born_timestamp,
        born_host=born_host or STORE_HOST,
        sys_flag=outgoing.sys_flag,
    )


def _check_body(message: OutgoingMessage, inflation: Inflation) -> None:
    """Raise MessageError (BODY_CORRUPT, BODY_TOO_LARGE) unless the body is plain or inflates."""
    if message.sys_flag == COMPRESSED_FLAGS:
        inflation.check(message.body)
    elif message.sys_flag:
        raise MessageError(
            f"the sysFlag {message.sys_flag} is not that of a plain or a compressed body.",
            remedy="Use a client of the same release as the broker.",
            code="BODY_CORRUPT",
        )
