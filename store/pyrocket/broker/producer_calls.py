"""`ProducerCalls`: the calls of `pyrocket.client`'s producers."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from pyrocket.broker.half_checks import MAX_QUESTIONS
from pyrocket.broker.sends import SendOutcome, Sends, Sent
from pyrocket.engine.message_encoder import Origin
from pyrocket.formats.half_message import HalfMessage
from pyrocket.formats.message_id import offset_message_id
from pyrocket.formats.record import STORE_HOST
from pyrocket.message import Message, MessageQueue, SendResult
from pyrocket.metadata.groups import check_group_name
from pyrocket.producing import OutgoingMessage
from pyrocket.services.transactions.model import CheckRequest, Undecided
from pyrocket.store import Store

Ask = Callable[[Undecided], None]
"""Asks a producer about a half message; called by any thread, and must not block."""


class ProducerCalls:
    """Sends and transactions of producers, for one store. Safe to share between threads."""

    def __init__(self, store: Store, sends: Sends) -> None:
        self._store, self._sends = store, sends

    def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage]
    ) -> "Future[list[SendResult]]":
        """Append all messages to one queue, or none.

        Raises MessageError, TopicNotFoundError, BrokerBusyError.
        """
        sent = [Sent(_message(one, queue), _origin(one)) for one in messages]
        stored, results = self._sends.send(sent), Future[list[SendResult]]()
        # The messages are stored even if the client gives up.
        results.set_running_or_notify_cancel()
        stored.add_done_callback(partial(_resolve, results, queue, messages))
        return results

    def send_half(
        self, group: str, queue: MessageQueue, message: OutgoingMessage, immunity_s: int | None
    ) -> Undecided:
        """Store a half message of a producer group.

        immunity_s: Time in which the group is not asked about it; None for the broker's default.

        Raises GroupNameError, MessageError, TopicNotFoundError.
        """
        check_group_name(group)
        half, origin = _message(message, queue), _origin(message)
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

        def pass_on(request: CheckRequest) -> None:
            ask(Undecided(broker, request.half, request.message))

        target = _Target(group, pass_on, room)
        self._store.transactions.add(target)
        return partial(self._store.transactions.remove, target)


class _Target:
    """A producer, as a target of the check service."""

    def __init__(
        self, group: str, ask: Callable[[CheckRequest], None], room: Callable[[], int]
    ) -> None:
        self.group, self.ask, self.room = group, ask, room

    def is_asked(self, half: HalfMessage) -> bool:
        """Return False: an unanswered check request is repeated after the interval."""
        return False

    def close(self) -> None:
        """Do nothing: the producer closes itself."""


def _message(outgoing: OutgoingMessage, queue: MessageQueue) -> Message:
    return replace(outgoing.message, topic=queue.topic, body=outgoing.body, queue_id=queue.queue_id)


def _origin(outgoing: OutgoingMessage) -> Origin:
    return Origin(
        unique_id=outgoing.unique_id,
        born_timestamp=outgoing.born_timestamp,
        sys_flag=outgoing.sys_flag,
    )


def _resolve(
    results: "Future[list[SendResult]]",
    queue: MessageQueue,
    messages: Sequence[OutgoingMessage],
    stored: "Future[list[SendOutcome]]",
) -> None:
    if (error := stored.exception()) is not None:
        results.set_exception(error)
        return
    results.set_result(
        [
            SendResult(
                topic=queue.topic,
                queue_id=found.queue_id,
                queue_offset=found.queue_offset,
                physical_offset=found.physical_offset,
                msg_id=one.unique_id,
                offset_msg_id=offset_message_id(*STORE_HOST, found.physical_offset),
                status=found.status,
                broker=queue.broker,
            )
            for one, found in zip(messages, stored.result(), strict=True)
        ]
    )
