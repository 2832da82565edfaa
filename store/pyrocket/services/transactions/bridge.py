"""Holds the undecided messages and appends for commit, rollback, checks and cleaning.

The counterpart in RocketMQ, between its services and its store, is `TransactionalMessageBridge`.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyrocket.disk.shared_state import HALF_CURSOR, OP_CURSOR
from pyrocket.engine.engine import Engine
from pyrocket.engine.writer import Writer
from pyrocket.formats.half_message import HalfMessage
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.system_topics import HALF_TOPIC, OP_TOPIC
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.service_cursors import save_transaction_cursors
from pyrocket.services.transactions.half_messages import HalfMessages
from pyrocket.services.transactions.records import op_messages, unchanged_copies
from pyrocket.values.transactions import CheckPolicy

TRANSACTION_TOPICS = {HALF_TOPIC: 1, OP_TOPIC: 1}
"""The system topics that transactions need, with their queue counts."""


class TransactionBridge:
    """The undecided half messages of one open store, and the append that changes them.

    `lock` guards `halves`. A thread that holds `lock` must not wait for the write lock; the reverse
    is allowed.
    """

    def __init__(self, engine: Engine, policy: CheckPolicy) -> None:
        self._layout, self.reader, self.clock = engine.layout, engine.reader, engine.clock
        self.topics, self.ensure_topics = engine.topics, engine.ensure_topics
        self.delays, self.policy = engine.encoder.delays, policy
        self.halves = HalfMessages(engine.reader, Epochs(engine.layout))
        self.lock = threading.RLock()

    @contextmanager
    def exclusive(self, writer: Writer, *, wait: bool = True) -> Iterator[None]:
        """Hold the write lock and `lock`, with `halves` up to date.

        Without `wait`, raises StoreLockedError (LOCK_TIMEOUT) if another thread or process holds
        the write lock.
        """
        with writer.exclusive() if wait else writer.try_exclusive(), self.lock:
            self.catch_up(writer)
            yield

    def catch_up(self, writer: Writer) -> None:
        """Bring `halves` up to date; the caller must hold both locks."""
        self.halves.catch_up(self.cursors(writer))

    def cursors(self, writer: Writer) -> dict[int, int]:
        return {name: writer.page[name] for name in (HALF_CURSOR, OP_CURSOR)}

    def save_cursors(self, cursors: Mapping[int, int]) -> None:
        """Save durable cursors in RocketMQ's file; the caller must hold the write lock."""
        save_transaction_cursors(self._layout, cursors)

    def append(
        self,
        writer: Writer,
        batches: Sequence[EncodedBatch],
        ended: Collection[int],
        *,
        named: Collection[int] = (),
    ) -> None:
        """Append batches and end half messages in the same append. Call it within `exclusive`.

        Half messages at the offsets `ended` get an op message unless the half cursor moves past
        them; half messages at the offsets `named` always get an op message.
        """
        plan = self.halves.plan_end(ended)
        ops = sorted({*named, *plan.ops})
        self.ensure_topics(TRANSACTION_TOPICS)
        if ops:
            batches = [*batches, op_messages(ops, self.clock())]
        # Allowed on a full disk: room was checked when the half messages were sent, and the
        # cleaner, which frees space, appends half messages itself.
        appended = writer.append(batches, moves=plan.moves, make_room=False)
        if ops:
            self.halves.add_ops(int(appended[-1].queue_offsets[0]), ops)

    def append_again(self, writer: Writer, halves: Sequence[HalfMessage]) -> None:
        """Re-append the first undecided messages; the caller must hold both locks.

        This is not counted as a check, and no producer is asked. The half cursor moves past the
        originals. A decision about an original is applied to its copy (`EndTransactionProcessor`).
        """
        for part in _parts(halves, self.policy.max_append_bytes):
            self.catch_up(writer)
            offsets = [half.queue_offset for half in part]
            self.append(writer, unchanged_copies(self.reader, offsets), offsets)

    def append_again_before(self, writer: Writer, log_start: int) -> None:
        """Re-append the undecided messages before a log offset; see `Hooks.before_removal`."""
        with self.lock:
            self.catch_up(writer)
            self.append_again(
                writer, [half for half in self.halves if half.physical_offset < log_start]
            )


def _parts(halves: Sequence[HalfMessage], max_bytes: int) -> Iterator[Sequence[HalfMessage]]:
    """Split messages into parts of `max_bytes`, with at least one message each."""
    while halves:
        count, size = 0, 0
        while count < len(halves) and (not count or size + halves[count].size <= max_bytes):
            size += halves[count].size
            count += 1
        yield halves[:count]
        halves = halves[count:]
