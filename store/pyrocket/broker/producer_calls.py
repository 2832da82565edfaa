"""`ProducerCalls`: the calls of `pyrocket.client`'s producers."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from pyrocket.broker.half_checks import MAX_QUESTIONS
from pyrocket.broker.sends import SendOutcome, Sends, Sent, converted
from pyrocket.engine.message_encoder import Origin
from pyrocket.formats.message_id import offset_message_id
from pyrocket.formats.record import STORE_HOST, Host
from pyrocket.metadata.groups import check_group_name
from pyrocket.services.transactions.half_messages import CheckRequest
from pyrocket.store import Store, sender_of
from pyrocket.values.message import Message, MessageQueue, OutgoingMessage, SendResult
from pyrocket.values.topics import TopicConfig
from pyrocket.values.transactions import Undecided

Ask = Callable[[Undecided], bool]
"""Asks a producer about a half message, and returns whether it accepts the request; called by any
thread, and must not block.
"""


class ProducerCalls:
    """Sends and transactions of producers, for one store. Safe to share between threads."""

    def __init__(self, store: Store, sends: Sends) -> None:
        self._store, self._sends = store, sends

    def send(
        self,
        queue: MessageQueue,
        messages: Sequence[OutgoingMessage],
        born_host: Host = STORE_HOST,
    ) -> "Future[list[SendResult]]":
        """Append all messages to one queue, or none.

        born_host: The address of the client.

        Raises MessageError, TopicNotFoundError, BrokerBusyError.
        """
        sent = [Sent(_message(one, queue), _origin(one, born_host)) for one in messages]
        return converted(self._sends.send(sent), partial(self._results, sent, queue.broker))

    def _results(
        self, sent: Sequence[Sent], broker: str, stored: "Future[list[SendOutcome]]"
    ) -> list[SendResult]:
        host, port = self._store.lookup.host
        return [
            SendResult(
                topic=one.message.topic,
                queue_id=found.queue_id,
                queue_offset=found.queue_offset,
                physical_offset=found.physical_offset,
                msg_id=one.origin.unique_id,
                offset_msg_id=offset_message_id(host, port, found.physical_offset),
                status=found.status,
                broker=broker,
            )
            for one, found in zip(sent, stored.result(), strict=True)
        ]

    def create_missing(self, name: str) -> TopicConfig:
        """Return a topic; a missing one is created if the store's `auto_create_topics` is set.

        Raises TopicNotFoundError, TopicNameError, MessageError (TOPIC_NOT_WRITABLE).
        """
        sender_of(self._store).route(name)
        return self._store.topics.get(name)

    def send_half(
        self,
        group: str,
        queue: MessageQueue,
        message: OutgoingMessage,
        immunity_s: int | None,
        born_host: Host = STORE_HOST,
    ) -> Undecided:
        """Store a half message of a producer group.

        immunity_s: Time in which the group is not asked about it; None for the broker's default.
        born_host: The address of the client.

        Raises GroupNameError, MessageError, TopicNotFoundError.
        """
        check_group_name(group)
        half, origin = _message(message, queue), _origin(message, born_host)
        request, status = self._store.transactions.send_half(group, half, immunity_s, origin)
        return Undecided(self._store.broker_name, request.half, request.message, status)

    def watch_checks(
        self, group: str, ask: Ask, room: Callable[[], int] = lambda: MAX_QUESTIONS
    ) -> Callable[[], None]:
        """Call `ask` for each half message that a producer of the group has to decide.

        room: Returns the number of further requests that the producer accepts.

        Returns a function that ends the calls.
        """
        broker = self._store.broker_name

        def pass_on(request: CheckRequest) -> bool:
            return ask(Undecided(broker, request.half, request.message))

        target = _Target(group, pass_on, room)
        self._store.transactions.add(target)
        return partial(self._store.transactions.remove, target)


class _Target:
    """A producer, as a target of the check service."""

    def __init__(
        self, group: str, ask: Callable[[CheckRequest], bool], room: Callable[[], int]
    ) -> None:
        self.group, self.ask, self.room = group, ask, room


def _message(outgoing: OutgoingMessage, queue: MessageQueue) -> Message:
    return replace(outgoing.message, topic=queue.topic, body=outgoing.body, queue_id=queue.queue_id)


def _origin(outgoing: OutgoingMessage, born_host: Host) -> Origin:
    return Origin(
        unique_id=outgoing.unique_id,
        born_timestamp=outgoing.born_timestamp,
        born_host=born_host,
        sys_flag=outgoing.sys_flag,
    )
