"""The transactions of one store: half messages sent, decided, checked and listed."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from pyrocket.arguments import check_message_kinds, check_text, is_whole
from pyrocket.clock import Clock
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.delayed_routing import Destination
from pyrocket.engine.group_append import GroupAppend
from pyrocket.engine.hooks import Hooks
from pyrocket.engine.message_encoder import MessageEncoder, TopicRoute
from pyrocket.engine.reader import Reader
from pyrocket.engine.writer import Writer
from pyrocket.errors import MessageError, StoreLockedError
from pyrocket.formats.half_message import HalfMessage, half_of
from pyrocket.formats.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TRAN_MSG,
)
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.formats.system_topics import HALF_TOPIC
from pyrocket.message import Message, SendStatus
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.topics import lacking_topics
from pyrocket.services.transactions.check_service import (
    CheckTarget,
    TransactionCheckService,
    question_of,
)
from pyrocket.services.transactions.end_transaction import Ending
from pyrocket.services.transactions.half_messages import HalfMessages
from pyrocket.services.transactions.keeping import keep_undecided
from pyrocket.services.transactions.ledger import Ledger
from pyrocket.services.transactions.model import (
    CheckPolicy,
    CheckRequest,
    HalfMessageRef,
    LocalTransactionState,
)
from pyrocket.services.transactions.onlooker import seen_cursors
from pyrocket.services.transactions.records import OWN_TOPICS


class Sending(Protocol):
    """How this store sends: see `Sender`."""

    @property
    def outgoing(self) -> MessageEncoder:
        """What encodes messages."""
        ...

    def route(self, writer: Writer, name: str) -> TopicRoute:
        """Return where messages for a topic may go."""
        ...

    def flush(self, writer: Writer) -> SendStatus:
        """Do what is configured about what was just appended."""
        ...


@translating_methods
class Transactions:
    """The transactions of one store; what only looks works on a read-only store, too.

    Messages are sent by a `TransactionProducer`.
    """

    def __init__(
        self,
        layout: Layout,
        reader: Reader,
        writing: Callable[[], Writer],
        clock: Clock,
        sending: Sending,
        policy: CheckPolicy | None = None,
    ) -> None:
        """Make them; `policy` says when producers are asked, and how often."""
        self._layout, self._reader, self._writing, self._clock = layout, reader, writing, clock
        self._sending = sending
        delays, rules = sending.outgoing.delays, policy or CheckPolicy()
        self._ledger = Ledger(layout, reader, clock, delays, rules)
        self._ending = Ending(self._ledger)
        self._producers: tuple[CheckTarget, ...] = ()
        self._joining = threading.Lock()
        self._checks = TransactionCheckService(self._ledger, lambda: self._producers)
        self._queue = GroupAppend(lambda writer, batches: None)

    def pending(self) -> list[HalfMessage]:
        """Return the undecided half messages, in queue order."""
        undecided = HalfMessages(self._reader, Epochs(self._layout))
        undecided.catch_up(seen_cursors(self._reader, self._layout))
        return list(undecided)

    def end(
        self,
        place: HalfMessageRef,
        state: LocalTransactionState,
        *,
        from_check: bool = False,
    ) -> SendStatus:
        """Commit or roll back a half message; UNKNOWN changes nothing.

        With `from_check` it is the answer to a question, which may come late. Raises
        TransactionError, and then nothing was written.
        """
        return self._end(place, state, None, from_check=from_check)

    def answer(
        self, question: CheckRequest, state: LocalTransactionState, *, from_check: bool
    ) -> SendStatus:
        """Do the same for a message of which the producer has what was stored."""
        return self._end(question.place, state, question.record, from_check=from_check)

    def _end(
        self,
        place: HalfMessageRef,
        state: LocalTransactionState,
        record: Record | None,
        *,
        from_check: bool,
    ) -> SendStatus:
        writer = self._writing()
        self._ending.end(writer, place, state, from_check=from_check, record=record)
        return self._sending.flush(writer)

    def send_half(
        self, group: str, message: Message, immunity_s: int | None = None
    ) -> tuple[CheckRequest, SendStatus]:
        """Store a half message; return it, named, and how it was flushed. Raises MessageError."""
        check_text(group=group)
        check_message_kinds(message)
        if message.delay_level or message.deliver_at_ms is not None:
            raise MessageError(
                "a message of a transaction cannot have a delay.",
                remedy="Send it when it is due, or without a transaction.",
                code="TRANSACTION_DELAYED",
            )
        if immunity_s is not None and not is_whole(immunity_s):
            raise MessageError(
                f"the immunity is {immunity_s!r} s.", remedy="Use whole seconds from 0 on, or none."
            )
        writer = self._writing()
        route_to = self._sending.route(writer, message.topic)
        self._make_rooms(writer)
        to = self._half_destination(group, message, route_to, immunity_s)
        encoded, _ = self._sending.outgoing.encode_to(message, to)
        (appended,) = self._queue.append(writer, [encoded])
        record = decode_record(appended.batch.load().stored(0), verify_crc=False)
        with self._ledger.lock:
            self._ledger.undecided.note_half(half_of(record))
        return question_of(record.to_message(), record), self._sending.flush(writer)

    def run_checks(self) -> int:
        """Make a round of checks if it is time; return how many messages were looked at.

        0 where somebody writes: it is tried again next time.
        """
        with suppress(StoreLockedError):
            return self._checks.run_due(self._writing(), self._clock())
        return 0

    def add(self, producer: CheckTarget) -> None:
        """Have a producer asked from now on. Raises StoreReadOnlyError."""
        self._writing()
        with self._joining:
            self._producers = (*self._producers, producer)
        self._checks.start_soon()

    def remove(self, producer: CheckTarget) -> None:
        """Ask a producer no more."""
        with self._joining:
            self._producers = tuple(one for one in self._producers if one is not producer)

    def hook_into(self, hooks: Hooks) -> None:
        """Have undecided messages put back before their log files go."""
        hooks.before_removal.append(
            lambda log_start: keep_undecided(self._ledger, self._writing(), log_start)
        )
        hooks.queues_touched_by_cleanup.append(self._queues_touched_by_cleanup)

    def _queues_touched_by_cleanup(self, log_start: int) -> set[tuple[str, int]]:
        waits_there = any(half.physical_offset < log_start for half in self.pending())
        return {(HALF_TOPIC, 0)} if waits_there else set()

    def close(self) -> None:
        """Close all producers, while the store is still open."""
        for producer in self._producers:
            producer.close()

    def _make_rooms(self, writer: Writer) -> None:
        if not lacking_topics(OWN_TOPICS, self._reader.topics.all()):
            return
        with writer.exclusive():
            self._ledger.make_rooms(writer, OWN_TOPICS)

    def _half_destination(
        self, group: str, message: Message, route_to: TopicRoute, immunity_s: int | None
    ) -> Destination:
        check_message_kinds(message)
        queue_id = self._sending.outgoing.queue_of(message, route_to)
        own = {TRAN_MSG: "true", PGROUP: group}
        if immunity_s is not None:
            own[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(immunity_s)
        own |= {REAL_TOPIC: route_to.topic, REAL_QID: str(queue_id)}
        return Destination(HALF_TOPIC, 0, own)
