"""Which half messages are undecided: what a RocketMQ broker would find out, kept up to date.

Undecided is what lies at or behind the half cursor and is named by no op message at or behind the
op cursor. Both queues are followed as they grow, whoever writes them, so that a look costs what is
new since the last one. A put-back makes a copy, whose original is decided by the same append; where
a crash has left an original without that, it counts as decided all the same.

The half cursor stands at the first undecided message. The op cursor stands at the first op message
that names anything at or behind where the half cursor was before: one step behind, so that cursors
saved at any moment agree (`calculateOpOffset` gives the op cursor up to the first gap). Source:
`TransactionalMessageServiceImpl.check`, `fillOpRemoveMap`.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyrocket.disk.shared_state import HALF_CURSOR, OP_CURSOR
from pyrocket.engine.reader import Reader
from pyrocket.formats.half_message import HalfMessage, read_halves, read_ops
from pyrocket.formats.record import SYS_COMMIT, SYS_TRANSACTION_MASK
from pyrocket.formats.system_topics import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from pyrocket.metadata.epochs import Epochs
from pyrocket.services.transactions.pieces import pieces

_COMMITS_LOOKED_AT = 32
_DISCARDS_LOOKED_AT = 4096

Cursors = Mapping[int, int]
"""The half and op cursors by word of the state page; a missing one is 0."""


@dataclass(frozen=True)
class Settlement:
    """What an append has to hold so that half messages are decided by it.

    ops: their queue offsets that have to be named, as the half cursor does not pass them.
    half, op: where the cursors go.
    """

    ops: list[int]
    half: int
    op: int

    @property
    def moves(self) -> dict[int, int]:
        """The same as `Writer.append` takes it."""
        return {HALF_CURSOR: self.half, OP_CURSOR: self.op}


class HalfMessages:
    """The undecided half messages of one store, as of the last `catch_up`. Not safe to share."""

    def __init__(self, reader: Reader, epochs: Epochs) -> None:
        self._reader, self._epochs = reader, epochs
        # In queue order; the first ones go all the time, which makes a plain dict slow.
        self._halves: OrderedDict[int, HalfMessage] = OrderedDict()
        self._newest: dict[object, int] = {}
        self._left_over: set[int] = set()
        self._named_ahead: set[int] = set()
        self._ops: deque[tuple[int, tuple[int, ...]]] = deque()
        self._half_end = self._op_end = 0
        self._half_cursor = 0
        self._is_new = True

    def __iter__(self) -> Iterator[HalfMessage]:
        """Yield them in queue order."""
        return (half for at, half in self._halves.items() if at not in self._left_over)

    @property
    def end(self) -> int:
        """Where the half queue ends: the next half message's offset, to whoever has a turn."""
        return self._half_end

    @property
    def behind(self) -> int:
        """How many messages lie between the first undecided one and the end."""
        return self._half_end - next(iter(self._halves), self._half_end)

    def find(self, queue_offset: int) -> HalfMessage | None:
        """Return the undecided half message at this offset."""
        half = self._halves.get(queue_offset)
        return None if queue_offset in self._left_over else half

    def newest_copy(self, half: HalfMessage) -> HalfMessage | None:
        """Return what is undecided of a half message that has been put back since."""
        return self.find(self._newest.get(half.identity, -1))

    def of_transaction(self, transaction_id: str, group: str) -> HalfMessage | None:
        """Return the undecided half message of a transaction, if there is exactly one."""
        found = [
            half for half in self if (half.transaction_id, half.group) == (transaction_id, group)
        ]
        return found[0] if transaction_id and len(found) == 1 else None

    def is_named(self, queue_offset: int) -> bool:
        """Whether an op message that counts names this offset."""
        return any(queue_offset in named for _, named in self._ops)

    def catch_up(self, cursors: Cursors) -> None:
        """Read what has come since the last time; in a turn, nothing is newer then."""
        # In this order: who sees the op message of a put-back has to see the copy, too.
        ops, halves = (self._reader.system_offsets(topic) for topic in (OP_TOPIC, HALF_TOPIC))
        self._half_cursor = max(self._half_cursor, cursors.get(HALF_CURSOR, 0))
        start = max(self._half_cursor, halves.minimum)
        self._forget_below(start)
        self._half_end = max(self._half_end, start)
        op_start = max(cursors.get(OP_CURSOR, 0), ops.minimum)
        self._op_end = max(self._op_end, op_start)
        while self._ops and self._ops[0][0] < op_start:
            self._ops.popleft()
        for piece in pieces(self._reader, OP_TOPIC, self._op_end, ops.maximum, tell=True):
            for at, named in read_ops(piece.records):
                self._note_op(at, named, start)
        self._op_end = max(self._op_end, ops.maximum)
        for piece in pieces(self._reader, HALF_TOPIC, self._half_end, halves.maximum, tell=True):
            for half in read_halves(piece.records):
                self._note_half(half)
        self._half_end = max(self._half_end, halves.maximum)
        if self._is_new:
            self._is_new = False
            self._find_commits()
            self._find_discards()

    def note_half(self, half: HalfMessage) -> None:
        """See one that was just appended without reading it, if it is the next."""
        if half.queue_offset == self._half_end:
            self._note_half(half)
            self._half_end += 1

    def note_ops(self, first: int, named: Sequence[int]) -> None:
        """See op messages that were just appended, one a name, without reading them."""
        if first == self._op_end:
            for at, offset in enumerate(named, first):
                self._note_op(at, (offset,), self._half_cursor)
            self._op_end += len(named)

    def settlement(self, gone: Collection[int]) -> Settlement:
        """Return how these offsets are decided by an append in this turn; caught up before."""
        leaving = {*gone, *self._left_over}
        half = next((at for at in self._halves if at not in leaving), self._half_end)
        op = next(
            (at for at, named in self._ops if max(named, default=-1) >= self._half_cursor),
            self._op_end,
        )
        # An op message that names the first place of an immune one decides its copy, too.
        kept = {one.prepared for one in self} if self._left_over else set()
        ops = sorted(at for at in leaving if at >= half and at not in kept)
        return Settlement(ops, max(half, self._half_cursor), op)

    def _forget_below(self, start: int) -> None:
        while self._halves and (at := next(iter(self._halves))) < start:
            self._drop(at)
        if self._named_ahead:
            self._named_ahead = {at for at in self._named_ahead if at >= start}

    def _drop(self, at: int) -> None:
        half = self._halves.pop(at)
        self._left_over.discard(at)
        if self._newest.get(half.identity) == at:
            del self._newest[half.identity]

    def _note_op(self, at: int, named: tuple[int, ...], start: int) -> None:
        self._ops.append((at, named))
        for offset in named:
            if offset in self._halves:
                self._drop(offset)
            elif offset >= max(start, self._half_end):
                self._named_ahead.add(offset)

    def _note_half(self, half: HalfMessage) -> None:
        at, identity = half.queue_offset, half.identity
        original = None if identity is None else self._newest.get(identity)
        if original is not None:
            self._left_over.add(original)
        if at in self._named_ahead:
            self._named_ahead.remove(at)
            self._newest.pop(identity, None)
            return
        self._halves[at] = half
        if identity is not None:
            self._newest[identity] = at

    def _find_commits(self) -> None:
        """Find those that were committed by an append of which a loss of power left no op message.

        It was the last append of the log, so a commit was among the last of its queue then.
        """
        places = {half.physical_offset: at for at, half in self._halves.items()}
        for topic, queue_id in {(half.topic, half.queue_id) for half in self._halves.values()}:
            if topic and queue_id >= 0:
                for prepared in self._last_commits(topic, queue_id):
                    if prepared in places:
                        self._left_over.add(places[prepared])

    def _find_discards(self) -> None:
        """Find those that were discarded, where a crash has set the half cursor back before them.

        Like RocketMQ we note a discard by the cursor alone, if that gets past.
        """
        known = self._reader.system_offsets(DISCARD_TOPIC)
        start = max(known.minimum, known.maximum - _DISCARDS_LOOKED_AT)
        if not self._newest:
            return
        for piece in pieces(self._reader, DISCARD_TOPIC, start, known.maximum):
            for half in read_halves(piece.records):
                if half.identity in self._newest:
                    self._left_over.add(self._newest[half.identity])

    def _last_commits(self, topic: str, queue_id: int) -> Iterator[int]:
        """Yield the log offsets of the half messages that a queue's last messages come from.

        Its last ones now, and those that were its last after a recovery.
        """
        known = self._reader.system_offsets(topic, queue_id)
        for end in {known.maximum, *self._epochs.ends(topic, queue_id)}:
            start = max(known.minimum, end - _COMMITS_LOOKED_AT)
            for piece in pieces(self._reader, topic, start, min(end, known.maximum), queue_id):
                run = piece.records
                committed = run.sys_flag & SYS_TRANSACTION_MASK == SYS_COMMIT
                prepared = run.field("prepared_transaction_offset", run.after_hosts)
                yield from prepared[np.flatnonzero(committed)].tolist()
