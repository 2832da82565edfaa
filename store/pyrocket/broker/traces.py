"""`Traces`: writes RocketMQ's message trace, as its clients with a trace topic do.

A call adds its records to a bounded queue, and never waits. A thread appends them several times a
second, several records in each message of the trace topic. Records that do not fit in the queue or
cannot be stored are dropped and counted. Messages of the trace topic itself are not traced.

Source: `AsyncTraceDispatcher`, `SendMessageTraceHookImpl`, `ConsumeMessageTraceHookImpl`,
`EndTransactionTraceHookImpl`.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import groupby
from queue import Empty, Full, Queue
from typing import NamedTuple

from pyrocket.broker.pop.values import Delivery, Stored
from pyrocket.broker.sends import Sends, Sent
from pyrocket.engine.message_encoder import Origin, UniqueIds
from pyrocket.formats.properties import UNIQ_KEY
from pyrocket.formats.receipt import delivery_id
from pyrocket.formats.record import Host, host_text
from pyrocket.formats.trace import (
    COMMIT_OR_ROLLBACK,
    CONSUMED,
    CONSUMPTION_FAILED,
    DEFAULT_REGION,
    DELAYED,
    HALF,
    NORMAL,
    EndTransaction,
    Pub,
    SubAfter,
    SubBefore,
    Trace,
    TraceRecord,
    packed,
)
from pyrocket.message import Message, SendResult, SendStatus
from pyrocket.rounds import Rounds
from pyrocket.services.transactions.model import LocalTransactionState
from pyrocket.store import Store, consumption_of

MAX_PENDING = 10_000
"""Maximum records in the queue."""

_INTERVAL_S = 0.1


_log = logging.getLogger(__name__)


class _Pending(NamedTuple):
    """An encoded record; RocketMQ's tools show `host` as the client of the trace message."""

    host: Host
    record: TraceRecord


class Traces:
    """The message trace of one broker. Safe to share between threads."""

    def __init__(
        self, store: Store, sends: Sends, topic: str, *, max_pending: int = MAX_PENDING
    ) -> None:
        """Create the trace topic if it is missing, and start the thread."""
        self._store, self._sends, self._topic = store, sends, topic
        consumption_of(store).ensure_topics({topic: 1})
        self._ids, self.rounds = UniqueIds(store.now), Rounds()
        self._pending: Queue[_Pending] = Queue(max_pending)
        self._lock, self.dropped = threading.Lock(), 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pyrocket-traces", daemon=True)
        self._thread.start()

    def sent(
        self, messages: Sequence[Sent], stored: "Future[list[SendResult]]", began_ms: int
    ) -> None:
        """Trace messages when they are stored. The group is the topic, as in RocketMQ's proxy."""

        def trace(done: "Future[list[SendResult]]") -> None:
            if done.exception() is None:
                cost_ms = self._store.now() - began_ms
                for sent, outcome in zip(messages, done.result(), strict=True):
                    record = _pub(sent, outcome, self._store.lookup.host, began_ms, cost_ms)
                    self._put(sent.message.topic, sent.origin.born_host, [record])

        stored.add_done_callback(trace)

    def delivered(self, host: Host, group: str, topic: str, found: Iterable[Delivery]) -> None:
        """Trace the messages of a receive."""
        now = self._store.now()
        self._put(topic, host, [_sub_before(one, group, topic, now) for one in found])

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
        now, code = self._store.now(), CONSUMED if success else CONSUMPTION_FAILED
        # The consumption time is unknown, and 0 here; the SubBefore has the time of the delivery.
        records = [
            SubAfter(_request(group, topic, handle), one, 0, success, None, code, now, group)
            for one, handle in receipts
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
        record = EndTransaction(
            timestamp=self._store.now(),
            region=DEFAULT_REGION,
            group=topic,
            topic=topic,
            message_id=transaction_id,
            tags=None,
            keys=None,
            store_host=host_text(*self._store.lookup.host),
            message_type=COMMIT_OR_ROLLBACK,
            transaction_id=transaction_id,
            state=state.value,
            from_check=from_check,
        )
        self._put(topic, host, [record])

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Append the pending records, and stop the thread."""
        self._closed.set()
        self._thread.join()

    def _put(self, topic: str, host: Host, records: Iterable[Trace]) -> None:
        if topic == self._topic:
            return
        for record in records:
            encoded = TraceRecord.of(record)
            if encoded is None:
                self._drop(1)
                continue
            try:
                self._pending.put_nowait(_Pending(host, encoded))
            except Full:
                self._drop(1)

    def _drop(self, count: int) -> None:
        with self._lock:
            is_first, self.dropped = not self.dropped, self.dropped + count
        if is_first:
            _log.warning("message traces were dropped; the metrics count further ones")

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            self.rounds.run("writing message traces failed", self._write)
        self.rounds.run("writing message traces failed", self._write)

    def _write(self) -> None:
        """Append the pending records together."""
        pending = [*self._taken()]
        if not pending:
            return
        try:
            self._sends.send([*self._messages(pending)]).result()
        except Exception:
            self._drop(len(pending))
            raise

    def _taken(self) -> Iterator[_Pending]:
        with suppress(Empty):
            for _ in range(self._pending.maxsize):
                yield self._pending.get_nowait()

    def _messages(self, pending: Sequence[_Pending]) -> Iterator[Sent]:
        """Yield trace messages with these records, each of one client."""
        by_host = sorted(pending, key=lambda one: one.host)
        for host, group in groupby(by_host, key=lambda one: one.host):
            for body, keys in packed(one.record for one in group):
                origin = Origin(
                    unique_id=self._ids.one(), born_timestamp=self._store.now(), born_host=host
                )
                yield Sent(Message(topic=self._topic, body=body, keys=keys), origin)


def _pub(sent: Sent, outcome: SendResult, host: Host, began_ms: int, cost_ms: int) -> Pub:
    message = sent.message
    delayed = NORMAL if message.deliver_at_ms is None else DELAYED
    return Pub(
        timestamp=began_ms,
        region=DEFAULT_REGION,
        group=message.topic,
        topic=message.topic,
        message_id=sent.origin.unique_id,
        tags=message.tags,
        keys=" ".join(message.keys) or None,
        store_host=host_text(*host),
        body_length=len(message.body),
        cost_ms=cost_ms,
        message_type=HALF if sent.is_half else delayed,
        offset_message_id=outcome.offset_msg_id,
        success=outcome.status is SendStatus.SEND_OK,
    )


def _sub_before(delivery: Delivery, group: str, topic: str, now_ms: int) -> SubBefore:
    message = delivery.message
    return SubBefore(
        timestamp=now_ms,
        region=DEFAULT_REGION,
        group=group,
        request_id=_request(group, topic, delivery.handle),
        message_id=message.properties.get(UNIQ_KEY) or message.msg_id,
        retry_times=delivery.attempt - 1,
        keys=" ".join(message.keys) or None,
    )


def _request(group: str, topic: str, handle: str) -> str:
    """Return the request id of a delivery, which is unique in the store."""
    return f"{topic}@{group}@{delivery_id(handle)}"
