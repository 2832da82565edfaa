"""The transactions of one store: half messages sent, decided, checked and listed."""

import threading
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from pyrocket.clock import Clock
from pyrocket.disk.layout import Layout
from pyrocket.disk.state_page import HALF_CURSOR, OP_CURSOR
from pyrocket.errors import MessageError, StoreLockedError
from pyrocket.formats.half_record import HalfMessage, half_of
from pyrocket.formats.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TRAN_MSG,
)
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.formats.system_topics import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from pyrocket.message import Message, SendStatus
from pyrocket.outgoing import Outgoing, Route
from pyrocket.reader import Reader
from pyrocket.services.delays import Destination
from pyrocket.services.epochs import Epochs
from pyrocket.services.groups import GroupOffsets
from pyrocket.services.topics import lacking_topics
from pyrocket.transactions.checking import Checks, Respondent, question_of
from pyrocket.transactions.ending import Ending
from pyrocket.transactions.keeping import keep_undecided
from pyrocket.transactions.ledger import Ledger
from pyrocket.transactions.records import OWN_TOPICS
from pyrocket.transactions.undecided import Cursors, Undecided
from pyrocket.transactions.words import CheckPolicy, HalfPlace, LocalTransactionState, Question
from pyrocket.write_queue import WriteQueue
from pyrocket.writer import Writer

_HEAD_BYTES = 8


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
        *,
        outgoing: Outgoing,
        route: Callable[[Writer, str], Route],
        flush: Callable[[Writer], SendStatus],
        policy: CheckPolicy | None = None,
    ) -> None:
        """Make them; `route` finds or makes a topic, `flush` does what the store promises."""
        self._layout, self._reader, self._writing, self._clock = layout, reader, writing, clock
        self._outgoing, self._route, self._flush = outgoing, route, flush
        rules = policy or CheckPolicy()
        self._ledger = Ledger(layout, reader, clock, outgoing.delays, rules)
        self._ending = Ending(self._ledger)
        self._producers: tuple[Respondent, ...] = ()
        self._joining = threading.Lock()
        self.checks = Checks(self._ledger, lambda: self._producers)
        self._queue = WriteQueue(lambda writer, batches: None)

    def pending(self) -> list[HalfMessage]:
        """Return the undecided half messages, in queue order."""
        undecided = Undecided(self._reader, Epochs(self._layout))
        undecided.catch_up(self._cursors())
        return list(undecided)

    def undecided_offsets(self) -> npt.NDArray[np.int64]:
        """Return the queue offsets, ascending, of the undecided messages in the half topic."""
        return np.array([half.queue_offset for half in self.pending()], np.int64)

    def end(
        self,
        place: HalfPlace,
        state: LocalTransactionState,
        *,
        from_check: bool = False,
        record: Record | None = None,
    ) -> SendStatus:
        """Commit or roll back a half message; UNKNOWN changes nothing. See `Ending.end`."""
        writer = self._writing()
        self._ending.end(writer, place, state, from_check=from_check, record=record)
        return self._flush(writer)

    def send_half(
        self, group: str, message: Message, immunity_s: int | None = None
    ) -> tuple[Question, SendStatus]:
        """Store a half message; return it, named, and how it was flushed. Raises MessageError."""
        if message.delay_level or message.deliver_at_ms is not None:
            raise MessageError(
                "a message of a transaction cannot have a delay.",
                remedy="Send it when it is due, or without a transaction.",
                code="TRANSACTION_DELAYED",
            )
        writer = self._writing()
        route_to = self._route(writer, message.topic)
        self._make_rooms(writer)
        to = self._half_destination(group, message, route_to, immunity_s)
        encoded, _ = self._outgoing.encode_to(message, to)
        head = encoded.data[:_HEAD_BYTES].to_pybytes()
        self._queue.append(writer, [encoded])
        # What was stored lies in the buffer now, but perhaps for its head, which is written last.
        record = decode_record(head + encoded.data[_HEAD_BYTES:].to_pybytes(), verify_crc=False)
        with self._ledger.lock:
            self._ledger.undecided.note_half(half_of(record))
        return question_of(record.to_message(), record), self._flush(writer)

    def run_checks(self) -> int:
        """Make a round of checks if it is time; return how many messages were looked at.

        0 where somebody writes: it is tried again next time.
        """
        with suppress(StoreLockedError):
            return self.checks.deliver_due(self._writing(), self._clock())
        return 0

    def add(self, producer: Respondent) -> None:
        """Have a producer asked from now on. Raises StoreReadOnlyError."""
        self._writing()
        with self._joining:
            self._producers = (*self._producers, producer)
        self.checks.start_soon()

    def remove(self, producer: Respondent) -> None:
        """Ask a producer no more."""
        with self._joining:
            self._producers = tuple(one for one in self._producers if one is not producer)

    def keep_undecided(self, log_start: int) -> None:
        """Put back what would go with old log files; see `Hooks.before_removal`."""
        keep_undecided(self._ledger, self._writing(), log_start)

    def _cursors(self) -> Cursors:
        """Return the cursors of the words, or RocketMQ's where nobody of ours has written."""
        known = self._reader.cursors()
        if known:
            return known
        offsets = GroupOffsets(self._layout)
        topics = ((HALF_CURSOR, HALF_TOPIC), (OP_CURSOR, OP_TOPIC))
        return {word: offsets.of(TRANSACTION_GROUP, topic).get(0, 0) for word, topic in topics}

    def _make_rooms(self, writer: Writer) -> None:
        if not lacking_topics(OWN_TOPICS, self._reader.topics.all()):
            return
        with writer.section():
            self._ledger.make_rooms(writer, OWN_TOPICS)

    def _half_destination(
        self, group: str, message: Message, route_to: Route, immunity_s: int | None
    ) -> Destination:
        queue_id = self._outgoing.queue_of(message, route_to)
        own = {TRAN_MSG: "true", PGROUP: group}
        if immunity_s is not None:
            own[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(immunity_s)
        own |= {REAL_TOPIC: route_to.topic, REAL_QID: str(queue_id)}
        return Destination(HALF_TOPIC, 0, own)
