"""`Traces`: writes RocketMQ's message trace, as its clients with a trace topic do.

A call adds its records to a `TraceQueue`. A thread appends them several times a second, several
records in each message of the trace topic. Records that cannot be stored are dropped and counted.

Source: `AsyncTraceDispatcher`, `SendMessageTraceHookImpl`, `ConsumeMessageTraceHookImpl`,
`EndTransactionTraceHookImpl`.
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from pyrocket.base.rounds import Rounds
from pyrocket.broker.pop.values import Delivery, Stored
from pyrocket.broker.sends import Sends, Sent
from pyrocket.broker.trace_queue import MAX_PENDING, TraceMessage, TraceQueue
from pyrocket.engine.message_encoder import Origin, UniqueIds
from pyrocket.formats import trace
from pyrocket.formats.receipt import delivery_id
from pyrocket.formats.record import Host, host_text
from pyrocket.store import Store, consumption_of
from pyrocket.values.message import Message, SendResult, SendStatus
from pyrocket.values.transactions import LocalTransactionState

_INTERVAL_S = 0.1


class Traces:
    """The message trace of one broker. Safe to share between threads."""

    def __init__(
        self, store: Store, sends: Sends, topic: str, *, max_pending: int = MAX_PENDING
    ) -> None:
        """Create the trace topic if it is missing, and start the thread."""
        self._store, self._sends, self._topic = store, sends, topic
        consumption_of(store).ensure_topics({topic: 1})
        self._ids, self.rounds = UniqueIds(store.now), Rounds()
        self._queue = TraceQueue(topic, store.broker_name, max_pending)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pyrocket-traces", daemon=True)
        self._thread.start()

    def sent(
        self, messages: Sequence[Sent], stored: "Future[list[SendResult]]", began_ms: int
    ) -> None:
        """Trace messages when they are stored. The group is the topic, as in RocketMQ's proxy."""

        def add(done: "Future[list[SendResult]]") -> None:
            if done.exception() is None:
                cost_ms = self._store.now() - began_ms
                for sent, outcome in zip(messages, done.result(), strict=True):
                    record = _pub(sent, outcome, self._store.lookup.host, began_ms, cost_ms)
                    self._put(sent.message.topic, sent.origin.born_host, [record])

        stored.add_done_callback(add)

    def delivered(self, host: Host, group: str, topic: str, found: Iterable[Delivery]) -> None:
        now = self._store.now()
        self._put(topic, host, [_sub_before(delivery, group, topic, now) for delivery in found])

    def ended(
        self,
        host: Host,
        group: str,
        topic: str,
        receipts: Iterable[tuple[str, str]],
        stored: Stored,
        *,
        success: bool,
    ) -> None:
        """Trace the ends of deliveries when they are stored.

        receipts: Message ids and valid handles.
        success: True for an ack, False if the message is delivered again or is a dead letter.
        """
        now, code = self._store.now(), trace.CONSUMED if success else trace.CONSUMPTION_FAILED
        # The consumption time is unknown, and 0 here; the SubBefore has the time of the delivery.
        records = [
            trace.SubAfter(
                _request(group, topic, handle), message_id, 0, success, None, code, now, group
            )
            for message_id, handle in receipts
        ]
        stored.add_done_callback(
            lambda done: None if done.exception() else self._put(topic, host, records)
        )

    def transaction_ended(
        self,
        host: Host,
        topic: str,
        transaction_id: str,
        state: LocalTransactionState,
        *,
        from_check: bool,
    ) -> None:
        """Trace the end of a transaction. Its id is the message id."""
        record = trace.EndTransaction(
            timestamp=self._store.now(),
            region=trace.DEFAULT_REGION,
            group=topic,
            topic=topic,
            message_id=transaction_id,
            tags=None,
            keys=None,
            store_host=host_text(*self._store.lookup.host),
            message_type=trace.COMMIT_OR_ROLLBACK,
            transaction_id=transaction_id,
            state=state.value,
            from_check=from_check,
        )
        self._put(topic, host, [record])

    @property
    def dropped(self) -> int:
        """The number of records that were not stored."""
        return self._queue.dropped

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Append the pending records, and stop the thread."""
        self._closed.set()
        self._thread.join()

    def _put(self, topic: str, host: Host, records: Iterable[trace.Trace]) -> None:
        for record in records:
            self._queue.put(topic, record, host)

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            self.rounds.run("writing message traces failed", self._write)
        self.rounds.run("writing message traces failed", self._write)

    def _write(self) -> None:
        messages = self._queue.take()
        if not messages:
            return
        try:
            self._sends.send([self._sent(message) for message in messages]).result()
        except Exception:
            self._queue.drop(sum(message.records for message in messages))
            raise

    def _sent(self, message: TraceMessage) -> Sent:
        origin = Origin(
            unique_id=self._ids.one(), born_timestamp=self._store.now(), born_host=message.host
        )
        return Sent(Message(topic=self._topic, body=message.body, keys=message.keys), origin)


def _pub(sent: Sent, outcome: SendResult, host: Host, began_ms: int, cost_ms: int) -> trace.Pub:
    message = sent.message
    delayed = trace.NORMAL if message.deliver_at_ms is None else trace.DELAYED
    return trace.Pub(
        timestamp=began_ms,
        region=trace.DEFAULT_REGION,
        group=message.topic,
        topic=message.topic,
        message_id=sent.origin.unique_id,
        tags=message.tags,
        keys=" ".join(message.keys) or None,
        store_host=host_text(*host),
        body_length=len(message.body),
        cost_ms=cost_ms,
        message_type=trace.HALF if sent.is_half else delayed,
        offset_message_id=outcome.offset_msg_id,
        success=outcome.status is SendStatus.SEND_OK,
    )


def _sub_before(delivery: Delivery, group: str, topic: str, now_ms: int) -> trace.SubBefore:
    message = delivery.message
    return trace.SubBefore(
        timestamp=now_ms,
        region=trace.DEFAULT_REGION,
        group=group,
        request_id=_request(group, topic, delivery.handle),
        message_id=message.msg_id,
        retry_times=delivery.attempt - 1,
        keys=" ".join(message.keys) or None,
    )


def _request(group: str, topic: str, handle: str) -> str:
    """Return the request id of a delivery, which is unique in the store."""
    return f"{topic}@{group}@{delivery_id(handle)}"
