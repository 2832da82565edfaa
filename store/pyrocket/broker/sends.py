"""Sends messages of clients: the caller's thread encodes them, the append thread appends them."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from pyrocket.broker.append_queue import Append
from pyrocket.engine.message_encoder import AppendRoute, EncodedMessage, Origin
from pyrocket.engine.received_records import ReceivedRecords, StoredRecords
from pyrocket.formats.message_keys import offset_message_id
from pyrocket.store import Store, sender_of
from pyrocket.values.message import AppendResult, Message, SendResult

_T = TypeVar("_T")
_Converted = TypeVar("_Converted")


@dataclass(frozen=True)
class Sent:
    """A message sent by a client, with the fields that the client has set.

    is_half: Whether it is a half message, invisible until its transaction is committed.
    immunity_s: Time before the first check of a half message; None for the broker's default.
    """

    message: Message
    origin: Origin
    is_half: bool = False
    immunity_s: int | None = None


class Sends:
    """Appends the messages of a request together. Safe to share between threads."""

    def __init__(self, store: Store, append: Append) -> None:
        self._store, self._sender, self._append = store, sender_of(store), append

    def send(self, messages: Sequence[Sent]) -> "Future[list[SendResult]]":
        """Append all messages of one request, or none; return their results in order.

        The queue offset of half and delayed messages is 0, and their physical offset that of the
        record in the system topic.

        Missing topics are created if the store's `auto_create_topics` is set. Raises MessageError,
        TopicNameError, TopicNotFoundError, BrokerBusyError.
        """
        routes: dict[str, AppendRoute] = {}
        encoded = [self._encoded(message, routes) for message in messages]
        queues = {route.topic: route.queues for route in routes.values()}
        stored = self._append(ReceivedRecords(queues, [message.record for message in encoded]))
        return converted(stored, partial(self._results, messages, encoded))

    def _results(
        self,
        messages: Sequence[Sent],
        encoded: Sequence[EncodedMessage],
        done: "Future[AppendResult]",
    ) -> list[SendResult]:
        stored, (host, port) = cast("StoredRecords", done.result()), self._store.lookup.host
        offsets = [int(at.physical_offsets[0]) for at in stored.appended]
        return [
            SendResult(
                topic=sent.message.topic,
                queue_id=message.queue_id,
                queue_offset=0 if message.is_diverted else int(at.queue_offsets[0]),
                physical_offset=offset,
                msg_id=sent.origin.unique_id,
                offset_msg_id=offset_message_id(host, port, offset),
                status=stored.status,
                broker=self._store.broker_name,
            )
            for sent, message, at, offset in zip(
                messages, encoded, stored.appended, offsets, strict=True
            )
        ]

    def _encoded(self, sent: Sent, routes: dict[str, AppendRoute]) -> EncodedMessage:
        store, message, topic = self._store, sent.message, sent.message.topic
        route = routes.get(topic) or routes.setdefault(topic, self._sender.route(topic))
        if sent.is_half:
            # RocketMQ's proxy asks any producer of the topic, so the topic is used as the group.
            half = store.transactions.encode_half(topic, message, sent.immunity_s, sent.origin)
            return EncodedMessage(half, sent.origin.unique_id, 0, is_diverted=True)
        return self._sender.outgoing.encode_message(message, route, sent.origin)


def converted(
    future: "Future[_T]", convert: "Callable[[Future[_T]], _Converted]"
) -> "Future[_Converted]":
    """Return a future of what `convert` returns or raises for the finished future.

    It cannot be cancelled: the messages are stored even if the client gives up.
    """
    result: Future[_Converted] = Future()
    result.set_running_or_notify_cancel()

    def resolve(done: "Future[_T]") -> None:
        try:
            value = convert(done)
        except Exception as error:
            result.set_exception(error)
        else:
            result.set_result(value)

    future.add_done_callback(resolve)
    return result
