"""Finds the undecided half messages in the queues, as a RocketMQ broker does.

A half message is undecided if it is at or after the half cursor and no op message at or after the
op cursor refers to it. Any process may append to both queues; `catch_up` reads only the new
messages. A check or a re-append stores a copy and ends the original in the same append. If only the
copy survives a crash, the original still counts as decided.

The half cursor is at the first undecided message. The op cursor is at the first op message that
contains an offset at or after the previous half cursor. Because the op cursor depends on the
previous half cursor, the cursors are consistent whenever they are saved. (RocketMQ's
`calculateOpOffset` moves the op cursor to the first gap.) Source:
`TransactionalMessageServiceImpl.check`, `fillOpRemoveMap`.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import HALF_CURSOR, OP_CURSOR
from pyrocket.engine.reader import Reader, read_undamaged
from pyrocket.formats.half_message import HalfMessage, read_halves, read_ops
from pyrocket.formats.record import SYS_COMMIT, SYS_TRANSACTION_MASK
from pyrocket.formats.record_decode import Record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.service_cursors import Cursors, saved_cursors
from pyrocket.values.message import StoredMessage
from pyrocket.values.transactions import HalfMessageRef

_COMMITS_READ = 32
_DISCARDS_READ = 4096
_MAX_WAIT_SECONDS, _POLL_SECONDS = 1.0, 0.001


@dataclass(frozen=True)
class EndPlan:
    """The op messages and cursors of an append that ends half messages.

    ops: queue offsets that need an op message because the half cursor does not move past them.
        half, op: the new cursors.
    """

    ops: list[int]
    half: int
    op: int

    @property
    def moves(self) -> dict[int, int]:
        """The new cursors as the `moves` of `Writer.append`."""
        return {HALF_CURSOR: self.half, OP_CURSOR: self.op}


class HalfMessages:
    """The undecided half messages of one store as of the last `catch_up`. Not thread-safe."""

    def __init__(self, reader: Reader, epochs: Epochs) -> None:
        self._reader, self._epochs = reader, epochs
        # In queue order. Repeated removal of the first item is slow in a plain dict.
        self._halves: OrderedDict[int, HalfMessage] = OrderedDict()
        self._newest: dict[object, int] = {}
        self._of_id: dict[str, set[int]] = {}
        self._without_op: set[int] = set()
        self._named_early: set[int] = set()
        self._ops: deque[tuple[int, tuple[int, ...]]] = deque()
        self._half_end = self._op_end = 0
        self._half_cursor = 0
        self._is_new = True

    def __iter__(self) -> Iterator[HalfMessage]:
        """Yield the undecided messages in queue order."""
        return (half for at, half in self._halves.items() if at not in self._without_op)

    @property
    def end(self) -> int:
        """The end of the half queue: under the write lock, the offset of the next half message."""
        return self._half_end

    @property
    def backlog(self) -> int:
        """Number of messages from the first undecided message to the end of the queue."""
        return self._half_end - next(iter(self._halves), self._half_end)

    def find(self, queue_offset: int) -> HalfMessage | None:
        """Return the undecided half message at this offset."""
        half = self._halves.get(queue_offset)
        return None if queue_offset in self._without_op else half

    def newest_copy(self, half: HalfMessage) -> HalfMessage | None:
        """Return the newest undecided copy of a re-appended half message."""
        return self.find(self._newest.get(half.identity, -1))

    def of_transaction(self, transaction_id: str, group: str) -> list[HalfMessage]:
        """Return the undecided half messages of a transaction: several if its send was repeated.

        If they differ, the id belongs to several transactions, and the result is empty.
        """
        ids = sorted(self._of_id.get(transaction_id, ())) if transaction_id else []
        halves = [half for at in ids if (half := self.find(at)) and half.group == group]
        return halves if len({(half.topic, half.content) for half in halves}) == 1 else []

    def is_named(self, queue_offset: int) -> bool:
        """Return whether an op message at or after the op cursor contains this offset."""
        return any(queue_offset in named for _, named in self._ops)

    def catch_up(self, cursors: Cursors) -> None:
        """Read messages appended since the last call; all of them if the write lock is held."""
        # In this order: a reader that finds the op message of a copy must find the copy, too.
        ops, halves = (self._reader.system_offsets(topic) for topic in (OP_TOPIC, HALF_TOPIC))
        self._half_cursor = max(self._half_cursor, cursors.get(HALF_CURSOR, 0))
        start = max(self._half_cursor, halves.minimum)
        self._drop_below(start)
        self._half_end = max(self._half_end, start)
        op_start = max(cursors.get(OP_CURSOR, 0), ops.minimum)
        self._op_end = max(self._op_end, op_start)
        while self._ops and self._ops[0][0] < op_start:
            self._ops.popleft()
        for piece in self._new(OP_TOPIC, self._op_end, ops.maximum):
            for at, named in read_ops(piece):
                self._add_op(at, named, start)
        self._op_end = max(self._op_end, ops.maximum)
        for piece in self._new(HALF_TOPIC, self._half_end, halves.maximum):
            for half in read_halves(piece):
                self._add_half(half)
        self._half_end = max(self._half_end, halves.maximum)
        if self._is_new:
            self._is_new = False
            self._find_commits_without_op()
            self._find_discards_without_op()

    def _new(self, topic: str, start: int, end: int) -> Iterator[RecordFields]:
        known = self._reader, topic, 0, start, end
        for piece in read_undamaged(*known, log_damaged=True, verify_crc=topic == OP_TOPIC):
            yield piece.records

    def add_half(self, half: HalfMessage) -> None:
        """Add a half message that was just appended, without reading it, if none was skipped."""
        if half.queue_offset == self._half_end:
            self._add_half(half)
            self._half_end += 1

    def add_ops(self, first: int, named: Sequence[int]) -> None:
        """Add op messages that were just appended, one per half message, without reading them."""
        if first == self._op_end:
            for at, offset in enumerate(named, first):
                self._add_op(at, (offset,), self._half_cursor)
            self._op_end += len(named)

    def plan_end(self, ended: Collection[int]) -> EndPlan:
        """Return the op messages and cursors with which the next append ends these half messages.

        The caller must hold the write lock and has called `catch_up`.
        """
        leaving = {*ended, *self._without_op}
        half = next((at for at in self._halves if at not in leaving), self._half_end)
        op = next(
            (at for at, named in self._ops if max(named, default=-1) >= self._half_cursor),
            self._op_end,
        )
        # An op message for the original of an immune message also ends its copy.
        kept = {message.prepared for message in self} if self._without_op else set()
        ops = sorted(at for at in leaving if at >= half and at not in kept)
        return EndPlan(ops, max(half, self._half_cursor), op)

    def _drop_below(self, start: int) -> None:
        while self._halves and (at := next(iter(self._halves))) < start:
            self._drop(at)
        if self._named_early:
            self._named_early = {at for at in self._named_early if at >= start}

    def _drop(self, at: int) -> None:
        half = self._halves.pop(at)
        with_id = self._of_id[half.transaction_id]
        with_id.remove(at)
        if not with_id:
            del self._of_id[half.transaction_id]
        self._without_op.discard(at)
        if self._newest.get(half.identity) == at:
            del self._newest[half.identity]

    def _add_op(self, at: int, named: tuple[int, ...], start: int) -> None:
        self._ops.append((at, named))
        for offset in named:
            if offset in self._halves:
                self._drop(offset)
            elif offset >= max(start, self._half_end):
                self._named_early.add(offset)

    def _add_half(self, half: HalfMessage) -> None:
        at, identity = half.queue_offset, half.identity
        original = None if identity is None else self._newest.get(identity)
        if original is not None:
            self._without_op.add(original)
        if at in self._named_early:
            self._named_early.remove(at)
            self._newest.pop(identity, None)
            return
        self._halves[at] = half
        self._of_id.setdefault(half.transaction_id, set()).add(at)
        if identity is not None:
            self._newest[identity] = at

    def _find_commits_without_op(self) -> None:
        """Find messages that were committed by an append whose op message a power failure lost.

        This append was the last, so the committed message is among the last messages of its queue.
        """
        offset_at = {half.physical_offset: at for at, half in self._halves.items()}
        for topic, queue_id in {(half.topic, half.queue_id) for half in self._halves.values()}:
            if topic and queue_id >= 0:
                for prepared in self._last_commits(topic, queue_id):
                    if prepared in offset_at:
                        self._without_op.add(offset_at[prepared])

    def _find_discards_without_op(self) -> None:
        """Find messages that were discarded before a crash moved the half cursor back.

        As in RocketMQ, a discard has no op message where the cursor moves past it.
        """
        known = self._reader.system_offsets(DISCARD_TOPIC)
        start = max(known.minimum, known.maximum - _DISCARDS_READ)
        if not self._newest:
            return
        for piece in read_undamaged(self._reader, DISCARD_TOPIC, 0, start, known.maximum):
            for half in read_halves(piece.records):
                if half.identity in self._newest:
                    self._without_op.add(self._newest[half.identity])

    def _last_commits(self, topic: str, queue_id: int) -> Iterator[int]:
        """Yield the log offsets of the half messages of a queue's last committed messages.

        These are the last messages now and the last ones at each recovery.
        """
        known = self._reader.system_offsets(topic, queue_id)
        for end in {known.maximum, *self._epochs.ends(topic, queue_id)}:
            start = max(known.minimum, end - _COMMITS_READ)
            end = min(end, known.maximum)
            for piece in read_undamaged(self._reader, topic, queue_id, start, end):
                records = piece.records
                committed = records.sys_flag & SYS_TRANSACTION_MASK == SYS_COMMIT
                prepared = records.field("prepared_transaction_offset", records.after_hosts)
                yield from prepared[np.flatnonzero(committed)].tolist()


def read_half_messages(reader: Reader, layout: Layout) -> HalfMessages:
    """Return the undecided half messages. For readers, which do not hold the write lock."""
    halves = HalfMessages(reader, Epochs(layout))
    halves.catch_up(_dispatched_cursors(reader, layout))
    return halves


def _dispatched_cursors(reader: Reader, layout: Layout) -> Cursors:
    """Return cursors that are consistent with the queues.

    An append is published, moves the cursors, and is then dispatched to the queues. Before the
    dispatch, a re-appended half message cannot be found: the cursor is past the original, and the
    copy is not in the queue yet. Therefore the cursors are consistent when all records published
    before the cursors were read have been dispatched. If that takes too long (the writer crashed,
    or the batch is large), or if the shared state is invalid, the last saved cursors are used,
    which are lower.
    """
    cursors, end = reader.cursors(), reader.log_end()
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while cursors and reader.bound() < end:
        if time.monotonic() > deadline:
            return saved_cursors(layout)
        time.sleep(_POLL_SECONDS)
    return cursors or saved_cursors(layout)


@dataclass(frozen=True)
class CheckRequest:
    """A half message for a listener to execute or to check.

    message: the message with its real topic and queue.
    record: the half message as stored, if the caller has it.
    """

    half: HalfMessageRef
    message: StoredMessage
    record: Record | None = None
