"""Sends rows to the topics of a cluster of RocketMQ."""

import logging
import random
from collections import ChainMap, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

import pyarrow as pa

from pyrocket.base.clock import Pauses, system_clock
from pyrocket.base.config import MAX_BODY_BYTES
from pyrocket.engine.message_encoder import by_topic, check_message, keys_of, name_row, route
from pyrocket.errors import (
    BrokerBusyError,
    InvalidInputError,
    MessageError,
    PyrocketError,
    StoreUnavailableError,
    TransportError,
    UnsupportedError,
)
from pyrocket.formats.send_columns import SEND_COLUMNS, check_send_batch
from pyrocket.remoting.batches import OutgoingRows, message_ids, outgoing_rows
from pyrocket.remoting.calls import error_of
from pyrocket.remoting.cluster import ATTEMPT_S, LAST_PAUSE_S, RocketMQCluster
from pyrocket.remoting.requests import SendAnswer, version_of
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import AppendResult, Message, MessageQueue, SendResult, SendStatus

_FIND_S = 1.0
"""How long a broker is looked for before its rows are sent to others."""

_FIRST_WITH_TIMERS = 413
"""RocketMQ 5.0.0 in `MQVersion`."""

_PASSING = TransportError, BrokerBusyError
"""Errors after which rows are sent again."""

_Waiting = dict[MessageQueue, deque[OutgoingRows]]
_Failed = dict[MessageQueue, PyrocketError]
_log = logging.getLogger(__name__)


class RocketMQSink:
    """Sends rows at least once. Must be used by one thread only.

    A request without answer is repeated, so that its messages can be stored twice. They have the
    same ids then, and so have the rows of an append that is repeated with its `repeat_id`.
    """

    retention = None
    _last: tuple[MessageQueue, SendAnswer]

    def __init__(
        self,
        cluster: RocketMQCluster,
        topics: Sequence[str] = (),
        *,
        broker: str = "",
        seconds: float = 30.0,
    ) -> None:
        """Connect when it is first used.

        topics: Topics that are written; the cluster is that of the first one.
        broker: The only broker to which rows are sent; empty for all brokers of a topic.
        seconds: How long requests are repeated.
        """
        self._cluster, self._topics = cluster, topics
        self._broker, self._seconds = broker, seconds
        self._known: dict[str, list[MessageQueue]] = {}
        self._with_timers: set[str] = set()
        self._status = SendStatus.SEND_OK
        self._turn = random.randrange(1024)

    @property
    def store_id(self) -> str:
        """The name of the cluster as the id of a store."""
        routes = self._cluster.routes(self._topics[:1], self._seconds)
        brokers = sorted(name for topic_route in routes.values() for name in topic_route.brokers)
        name = self._broker or (brokers or [""])[0]
        return f"rocketmq:{self._cluster.broker(name, self._seconds).cluster}"

    def prepare(self, topic: str, *, create: bool = True, queues: int | None = None) -> TopicConfig:
        """Return a topic with all queues that can be written. None is created.

        Raises TopicNotFoundError, MessageError (TOPIC_NOT_WRITABLE).
        """
        count = len(self._queues(topic))
        return TopicConfig(topic, count, count)

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        topic: str | None = None,
        first_queue: int | None = None,
        repeat_id: str = "",
    ) -> AppendResult:
        """Send all rows; after an error, some may be stored. All are checked before any is sent.

        A queue id is the position among the queues of all brokers, by broker and id.
        """
        columns = check_send_batch(batch)
        parts = by_topic(batch, topic) if len(columns) else []
        if columns.delay is not None or columns.deliver_at is not None:
            self._check_timers({name for name, _ in parts} or {topic or "", *self._topics})
        if not parts:
            return AppendResult(0, 0, 0)
        first = random.randrange(1024) if first_queue is None else first_queue
        topics = batch.column("topic") if topic is None else None
        ids = message_ids(repeat_id or uuid4().hex, columns, topics)
        waiting: _Waiting = {}
        for name, rows in parts:
            part = columns if rows is None else columns.take(rows)
            queues = self._queues(name)
            try:
                queue_ids = route(part, name, len(queues), first)
                own = ids if rows is None else ids.take(rows)
                for at, outgoing in outgoing_rows(part, own, queue_ids, system_clock()):
                    waiting.setdefault(queues[at], deque()).append(outgoing)
            except MessageError as error:
                raise name_row(error, rows) from None
        size = sum(item.body.nbytes for queue in waiting.values() for item in queue)
        self._send(waiting)
        return AppendResult(len(columns), size, 0, self._status)

    def send(self, message: Message, create: bool = False) -> SendResult:
        """Send one message, and return its place; its topic is not created.

        Raises the errors of `append`.
        """
        check_message(message, MAX_BODY_BYTES)
        row, repeat_id, self._turn = _row_of(message), uuid4().hex, self._turn + 1
        try:
            self.append(row, topic=message.topic, first_queue=self._turn, repeat_id=repeat_id)
        except MessageError as error:
            text = error.message.replace("row 0", "the message", 1)
            raise MessageError(text, remedy=error.remedy, code=error.code) from None
        (msg_id,) = message_ids(repeat_id, check_send_batch(row), None).to_pylist()
        queue, answer = self._last
        place = queue.queue_id, answer.queue_offset, answer.log_offset
        return SendResult(queue.topic, *place, msg_id, answer.offset_id, answer.status)

    def flush(self) -> None:
        """Do nothing: brokers flush as they are configured."""

    def close(self, *, clean: bool = True) -> None:
        """Do nothing: the connections belong to the cluster."""

    def _queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues to which messages of a topic can be sent, in the order of Java."""
        if topic not in self._known:
            topic_route = self._cluster.routes([topic], self._seconds).get(topic)
            if topic_route is None:
                raise self._cluster.not_found(topic, self._seconds)
            queues = [
                MessageQueue(topic, broker, queue_id)
                for broker, count in topic_route.write_queues.items()
                for queue_id in range(count)
                if self._broker in ("", broker)
            ]
            if not queues:
                raise MessageError(
                    f"no queue of the topic {topic!r} can be written at"
                    f" {self._broker or 'any broker'}.",
                    remedy="Start the master of its broker, or permit writing: `mqadmin"
                    " updateTopicPerm -n NAMESRV -c CLUSTER -t TOPIC -p 6`.",
                    code="TOPIC_NOT_WRITABLE",
                )
            self._known[topic] = queues
        return self._known[topic]

    def _check_timers(self, topics: set[str]) -> None:
        """Raise UnsupportedError if a broker of the topics has no due times, as RocketMQ 4."""
        brokers = {queue.broker for topic in topics if topic for queue in self._queues(topic)}
        brokers = brokers or {self._broker or self._cluster.broker("", self._seconds).name}
        for name in sorted(brokers - self._with_timers):
            (version,) = self._cluster.ask(name, [version_of()], self._seconds)
            if version < _FIRST_WITH_TIMERS:
                raise UnsupportedError(
                    f"the broker {name} has RocketMQ 4: no columns delay and deliverTimestamp.",
                    remedy="Use the column delayLevel, or RocketMQ 5.",
                    code="UNSUPPORTED_DELAY",
                )
            self._with_timers.add(name)

    def _send(self, waiting: _Waiting) -> None:
        """Send all rows, one request at a time to each queue, so that a queue keeps their order.

        Rows that failed are sent again; if they do not have to stay in their queue, to another
        broker. Raises the error of rows that fail until `seconds` have passed.
        """
        pauses: Pauses | None = None
        while waiting:
            failed = self._flight({queue: rows[0] for queue, rows in waiting.items()})
            for queue in waiting.keys() - failed.keys():
                waiting[queue].popleft()
            waiting = {queue: rows for queue, rows in waiting.items() if rows}
            failed = {queue: e for queue, e in failed.items() if not _halved(waiting[queue], e)}
            pauses = (pauses or Pauses(self._seconds, last=LAST_PAUSE_S)) if failed else None
            for queue, error in failed.items():
                if not isinstance(error, _PASSING):
                    raise self._final(queue, error)
            if pauses is not None and not pauses.wait():
                raise self._final(*next(iter(failed.items())))
            self._move(waiting, failed)

    def _final(self, queue: MessageQueue, error: PyrocketError) -> PyrocketError:
        """Return the error of a broker, which is not one about rows of which none were sent."""
        self._cluster.forget_topic(queue.topic)  # Its queues may have changed.
        self._known.pop(queue.topic, None)
        if not isinstance(error, InvalidInputError):
            return error
        message = f"{error.message} Other rows may be stored."
        return StoreUnavailableError(message, remedy=error.remedy, code=error.code)

    def _move(self, waiting: _Waiting, failed: _Failed) -> None:
        """Move the free rows of failed queues to queues of brokers that have not failed."""
        brokers = {queue.broker for queue in failed}
        for queue in failed:
            others = [other for other in self._queues(queue.topic) if other.broker not in brokers]
            for row in waiting.pop(queue):
                to = random.choice(others) if row.is_free and others else queue
                waiting.setdefault(to, deque()).append(row)

    def _flight(self, first: Mapping[MessageQueue, OutgoingRows]) -> _Failed:
        """Send rows to queues, all at once, and return the errors of those that failed."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in first:
            by_broker.setdefault(queue.broker, []).append(queue)
        sent = partial(self._sent, first)
        if len(by_broker) == 1:
            return sent(*by_broker.values())
        with ThreadPoolExecutor(len(by_broker), "pyrocket-sends") as pool:
            return dict(ChainMap(*pool.map(sent, by_broker.values())))

    def _sent(
        self, first: Mapping[MessageQueue, OutgoingRows], queues: Sequence[MessageQueue]
    ) -> _Failed:
        """Send rows to queues of one broker."""
        broker, now_ms = queues[0].broker, system_clock()
        calls = [first[queue].call(queue, now_ms) for queue in queues]
        try:
            pool = self._cluster.pool(broker, _FIND_S)
            seconds = min(self._seconds, ATTEMPT_S)
            answers = pool.exchange([call.request for call in calls], seconds)
        except TransportError as error:
            self._cluster.lost(broker)
            return dict.fromkeys(queues, error)
        failed: _Failed = {}
        for queue, call, answer in zip(queues, calls, answers, strict=True):
            if call.accepts(answer):
                self._note(queue, call.value(answer, pool.place))
            else:
                failed[queue] = error_of(answer, call.asked, pool.place)
        return failed

    def _note(self, queue: MessageQueue, answer: SendAnswer) -> None:
        """Log the first answer whose messages are stored, but not flushed or copied in time."""
        self._last, status = (queue, answer), answer.status
        if status is not SendStatus.SEND_OK and self._status is SendStatus.SEND_OK:
            self._status = status
            _log.warning("messages are stored, and may be lost with a broker: %s", status)


def _halved(rows: deque[OutgoingRows], error: PyrocketError) -> bool:
    """Divide the first batch if it is too long for a broker with a small `maxMessageSize`."""
    half = len(rows[0].body) // 2
    if not half or not isinstance(error, MessageError):
        return False
    batch = rows.popleft()
    rows.extendleft((batch.part(slice(half, None)), batch.part(slice(half))))
    return True


def _row_of(message: Message) -> pa.RecordBatch:
    """Return a checked message as a batch of one row."""
    values = {
        "body": message.body,
        "tags": message.tags,
        "keys": [*keys_of(message)],
        "properties": [*message.properties.items()],
        "queueId": message.queue_id,
        "shardingKey": message.sharding_key,
        "flag": message.flag,
        "delayLevel": message.delay_level,
        "deliverTimestamp": message.deliver_at_ms,
    }
    kinds = {name: kinds[0] for name, kinds in SEND_COLUMNS.items()}
    kinds["deliverTimestamp"] = pa.timestamp("ms", "UTC")
    given = {name: value for name, value in values.items() if value is not None}
    return pa.record_batch({name: pa.array([value], kinds[name]) for name, value in given.items()})
