"""`Store.transactions`: sends, decides, checks and lists half messages."""

import threading
from collections.abc import Callable
from contextlib import suppress

from pyrocket.base.arguments import check_text, check_type, is_whole
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.delayed_routing import Destination
from pyrocket.engine.engine import Engine, lazy_property
from pyrocket.engine.hooks import Hooks
from pyrocket.engine.message_encoder import AppendRoute, Origin
from pyrocket.engine.sender import Sender
from pyrocket.errors import MessageError, StoreLockedError
from pyrocket.formats.half_message import HalfMessage, half_of
from pyrocket.formats.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TRAN_MSG,
    check_message_kinds,
)
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.formats.system_topics import HALF_TOPIC
from pyrocket.metadata.topics import lacking_topics
from pyrocket.services.transactions.bridge import TRANSACTION_TOPICS, TransactionBridge
from pyrocket.services.transactions.check_service import (
    CheckTarget,
    TransactionCheckService,
    check_request,
)
from pyrocket.services.transactions.end_transaction import EndTransactionProcessor
from pyrocket.services.transactions.half_messages import CheckRequest, read_half_messages
from pyrocket.values.message import Message, SendStatus
from pyrocket.values.transactions import CheckPolicy, HalfMessageRef, LocalTransactionState


@translating_methods
class Transactions:
    """The transactions of one store. `pending` also works on a read-only store.

    See `pyrocket.services.transactions`. Applications send with `pyrocket.client.Producer`.
    """

    def __init__(
        self, engine: Engine, sender: Callable[[], Sender], policy: CheckPolicy | None = None
    ) -> None:
        """`sender` returns the sender of the store when it is first needed."""
        layout, reader, clock = engine.layout, engine.reader, engine.clock
        self._engine, self._layout, self._reader, self._clock = engine, layout, reader, clock
        self._sender, self._policy = sender, policy or CheckPolicy()
        self._producers: tuple[CheckTarget, ...] = ()
        self._registering = threading.Lock()

    @lazy_property
    def _bridge(self) -> TransactionBridge:
        return TransactionBridge(self._engine, self._policy)

    @lazy_property
    def _processor(self) -> EndTransactionProcessor:
        return EndTransactionProcessor(self._bridge)

    @lazy_property
    def _checks(self) -> TransactionCheckService:
        return TransactionCheckService(self._bridge, lambda: self._producers)

    def pending(self) -> list[HalfMessage]:
        """Return the undecided half messages in queue order."""
        return list(read_half_messages(self._reader, self._layout))

    def end(
        self,
        half: HalfMessageRef,
        state: LocalTransactionState,
        *,
        from_check: bool = False,
        record: Record | None = None,
    ) -> SendStatus:
        """Commit or roll back a half message; UNKNOWN changes nothing.

        from_check: whether the decision answers a check; such a decision is accepted at any time.
        record: the half message as stored, if the caller has it; saves a read.

        Raises TransactionError; then nothing was written.
        """
        writer = self._engine.writer
        self._processor.end(writer, half, state, from_check=from_check, record=record)
        return self._sender().flush(writer)

    def send_half(
        self,
        group: str,
        message: Message,
        immunity_s: int | None = None,
        origin: Origin | None = None,
    ) -> tuple[CheckRequest, SendStatus]:
        """Store a half message; return it with the status of its flush. Raises MessageError."""
        writer, encoded = self._engine.writer, self.encode_half(group, message, immunity_s, origin)
        writer.check_fits([encoded])
        with writer.exclusive():
            (appended,) = writer.append([encoded])
        record = decode_record(appended.batch.load().stored(0), verify_crc=False)
        with self._bridge.lock:
            self._bridge.halves.add_half(half_of(record))
        return check_request(record.to_message(), record), self._sender().flush(writer)

    def encode_half(
        self,
        group: str,
        message: Message,
        immunity_s: int | None = None,
        origin: Origin | None = None,
    ) -> EncodedBatch:
        """Return a half message as a record that is not appended yet. Raises MessageError."""
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
                f"the immunity time is {immunity_s!r} s.",
                remedy="Use a whole number of seconds, 0 or more, or None.",
            )
        route = self._sender().route(message.topic)
        if lacking_topics(TRANSACTION_TOPICS, self._reader.topics.all()):
            with self._engine.writer.exclusive():
                self._engine.ensure_topics(TRANSACTION_TOPICS)
        to = self._half_destination(group, message, route, immunity_s)
        return self._sender().outgoing.encode_to(message, to, origin)

    def end_by_id(
        self, group: str, transaction_id: str, state: LocalTransactionState, topic: str = ""
    ) -> SendStatus:
        """Commit or roll back the half message with this id, at any time; UNKNOWN changes nothing.

        topic: Its topic, if the caller may decide only messages of one topic.

        Raises TransactionError (TRANSACTION_NOT_FOUND) if the group has no such undecided message.
        """
        check_text(group=group, transaction_id=transaction_id)
        writer = self._engine.writer
        self._processor.end_by_id(writer, group, transaction_id, state, topic)
        return self._sender().flush(writer)

    def set_policy(self, policy: CheckPolicy) -> None:
        """Set when half messages are checked; applies to the next round and later rounds."""
        check_type(CheckPolicy, "Use a CheckPolicy.", policy=policy)
        self._bridge.policy = policy

    def run_checks(self) -> int:
        """Run a round of checks if one is due; return the number of messages that it changed.

        Also returns 0 while another thread or process holds the write lock; the next call retries.
        """
        with suppress(StoreLockedError):
            return self._checks.run_due(self._engine.writer, self._clock())
        return 0

    def add(self, producer: CheckTarget) -> None:
        """Register a producer for checks of its group. Raises StoreReadOnlyError."""
        _ = self._engine.writer
        with self._registering:
            self._producers = (*self._producers, producer)
        self._checks.start_soon()

    def remove(self, producer: CheckTarget) -> None:
        """Unregister a producer."""
        with self._registering:
            self._producers = tuple(other for other in self._producers if other is not producer)

    def hook_into(self, hooks: Hooks) -> None:
        """Re-append undecided messages before the cleaner deletes their log files."""
        hooks.before_removal.append(
            lambda log_start: self._bridge.append_again_before(
                self._engine.writer_in_hook, log_start
            )
        )
        hooks.queues_touched_by_cleanup.append(self._queues_touched_by_cleanup)

    def _queues_touched_by_cleanup(self, log_start: int) -> set[tuple[str, int]]:
        affected = any(half.physical_offset < log_start for half in self.pending())
        return {(HALF_TOPIC, 0)} if affected else set()

    def _half_destination(
        self, group: str, message: Message, route: AppendRoute, immunity_s: int | None
    ) -> Destination:
        queue_id = self._sender().outgoing.queue_of(message, route)
        properties = {TRAN_MSG: "true", PGROUP: group}
        if immunity_s is not None:
            properties[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(immunity_s)
        properties |= {REAL_TOPIC: route.topic, REAL_QID: str(queue_id)}
        return Destination(HALF_TOPIC, 0, properties)
