"""What waits in a store: delayed messages, and half messages that nobody has decided about.

A look at it is a plan, made once: places in RocketMQ's own topics, which stay what they are while
messages are delivered. Whoever has the plan reads the messages, perhaps elsewhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from pyrocket.arguments import check_texts, check_type
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import level_word
from pyrocket.engine.reader import Reader
from pyrocket.errors import InvalidInputError, SchemaError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.pending_columns import DUE, PENDING_COLUMNS, parked_columns, rows_for
from pyrocket.formats.record_columns import QueueRun
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.formats.timer_entry import TimerEntries
from pyrocket.index.queues.scanner import Slice
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.service_cursors import saved_cursors
from pyrocket.metadata.topics import TopicConfig
from pyrocket.services.transactions.half_messages import HalfMessages

PendingKind = Literal["scheduled", "half"]
"""`scheduled` messages are delivered when they are due, `half` ones when they are committed."""

MAX_MESSAGES = 16_384
"""In one part of a plan."""

_WIDEST_GAP = 256
"""Messages between two of one part that are read and left out."""


@dataclass(frozen=True, order=True)
class PendingRange:
    """Messages that wait in one queue: all of [start, end), or those at `offsets` alone.

    `offsets` are int64 in native order, ascending.
    """

    topic: str
    queue_id: int
    start: int
    end: int
    offsets: bytes = b""

    @property
    def messages(self) -> int:
        """How many there are, for whatever topic."""
        return len(self.offsets) // 8 or self.end - self.start


class PendingMessages:
    """Plans and reads what waits in one store, which may be open for reading only."""

    def __init__(self, layout: Layout, reader: Reader, timers: Callable[[], TimerEntries]) -> None:
        """Make it; `timers` returns those that wait, see `formats.timer_entry`."""
        self._layout, self._reader, self._timers = layout, reader, timers

    def plan(self, kind: PendingKind) -> list[PendingRange]:
        """Return where the messages of a kind wait now, those of all topics."""
        if kind not in get_args(PendingKind):
            raise InvalidInputError(
                f"nothing waits as {kind!r}.",
                remedy=f"Use one of {list(get_args(PendingKind))}.",
                code="PENDING_KIND",
            )
        if kind == "half":
            return list(_chosen(HALF_TOPIC, self._halves()))
        timers = self._timers()["queue_offset"].astype(np.int64)
        return [*self._levels(), *_chosen(TIMER_TOPIC, np.sort(timers))]

    def scan(
        self, part: PendingRange, topics: Sequence[str], columns: Sequence[str], *, verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield those of a part that are for one of the topics; the columns are checked at once."""
        check_type(PendingRange, "Use what `Store.pending` returned.", part=part)
        check_texts(topics=topics, columns=columns)
        known = [name for name in PENDING_COLUMNS if name != DUE or part.topic != HALF_TOPIC]
        unknown = [name for name in columns if name not in known]
        if unknown or not columns:
            raise SchemaError(
                f"these messages have no column {unknown[0]!r}." if unknown else "name a column.",
                remedy=f"They have {', '.join(known)}.",
                code="COLUMN_UNKNOWN",
            )
        return self._scan(part, topics, columns, verify_crc)

    def _scan(
        self, part: PendingRange, topics: Sequence[str], columns: Sequence[str], verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        chosen = np.frombuffer(part.offsets, np.int64) if part.offsets else None
        broker = self._reader.identity.config.broker_name
        for piece in self._reader.records(part.topic, part.queue_id, part.start, part.end):
            rows = rows_for(piece.records, topics)
            if chosen is not None:
                rows = rows[np.isin(rows + piece.first_offset, chosen)]
            where = QueueRun(part.topic, broker, part.queue_id, piece.first_offset)
            # Where bodies inflate to a lot, the rows come in several batches.
            while len(rows):
                some, codes = _take(piece, rows)
                batch = parked_columns(some, codes, where, columns, verify_crc=verify_crc)
                yield batch
                rows = rows[batch.num_rows :]

    def _levels(self) -> Iterator[PendingRange]:
        count = len(self._reader.identity.config.delay_levels_ms)
        words = self._words()
        has = self._reader.offsets(TopicConfig(SCHEDULE_TOPIC, count, count))
        for queue_id, known in has.items():
            start = max(words.get(level_word(queue_id + 1), 0), known.minimum)
            for first in range(start, known.maximum, MAX_MESSAGES):
                end = min(first + MAX_MESSAGES, known.maximum)
                yield PendingRange(SCHEDULE_TOPIC, queue_id, first, end)

    def _halves(self) -> Ints:
        undecided = HalfMessages(self._reader, Epochs(self._layout))
        undecided.catch_up(self._words())
        return np.array([half.queue_offset for half in undecided], np.int64)

    def _words(self) -> dict[int, int]:
        """Return the services' cursors: the shared words or, without true ones, what was saved."""
        return self._reader.cursors() or saved_cursors(self._layout)


def _take(piece: Slice, rows: Ints) -> tuple[RecordFields, Ints]:
    run = piece.records
    some = run.part(rows)
    return some, piece.tags_codes[rows]


def _chosen(topic: str, offsets: Ints) -> Iterator[PendingRange]:
    """Yield parts with these offsets of queue 0, which ascend."""
    wide = np.flatnonzero(np.diff(offsets) > _WIDEST_GAP) + 1
    for near in np.split(offsets, wide):
        for first in range(0, len(near), MAX_MESSAGES):
            some = near[first : first + MAX_MESSAGES]
            start, end = int(some[0]), int(some[-1]) + 1
            yield PendingRange(
                topic, 0, start, end, b"" if end - start == len(some) else some.tobytes()
            )
