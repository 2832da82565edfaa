"""Delivery of the delay levels, RocketMQ's `ScheduleMessageService`.

The messages of level n wait in queue n - 1 of SCHEDULE_TOPIC_XXXX, in the order in which they are
due: all wait equally long. An entry's tags code is when. A shared word for each level says how far
it is delivered; it moves with the messages' copies, so whatever dies, each is delivered once.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import MAX_MOVES, NEVER, level_word
from pyrocket.engine.hooks import EVERYTHING_MAY_GO, Hooks
from pyrocket.engine.reader import Reader
from pyrocket.engine.writer import Writer
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.metadata.service_cursors import Cursors, saved_cursors
from pyrocket.services.delay.due_copies import Copies, due_copies

MAX_MESSAGES = 4096
MAX_BYTES = 8 * 1024 * 1024
MAX_BATCHES = 256
"""Of one append: it holds the turn, and others want to write."""

_log = logging.getLogger(__name__)


class ScheduleService:
    """Delivers what is due of one store's delay levels; see `service_runner.Service`."""

    def __init__(self, layout: Layout, reader: Reader) -> None:
        self._layout, self._reader = layout, reader
        self._first_level = 1

    def hook_into(self, hooks: Hooks) -> None:
        """Have log files kept that hold what is still to be delivered."""
        hooks.holds["delayed messages that are still to be delivered"] = self.holds

    @property
    def _delays_ms(self) -> Sequence[int]:
        return self._reader.identity.config.delay_levels_ms

    def deliver_due(self, writer: Writer, now_ms: int) -> int:
        """Deliver up to MOST_MESSAGES, each level's in their order; return how many were due."""
        delivery = _Delivery()
        with writer.try_exclusive():
            pending = list(self._pending(writer.page.cursors()))
            # A level that fills a parcel alone must not keep the others waiting.
            for level, start, end in sorted(pending, key=lambda one: one[0] < self._first_level):
                if delivery.has_room:
                    self._take(delivery, level, start, end, now_ms)
                    self._first_level = 1 if delivery.has_room else level + 1
            delivery.send(writer)
        return delivery.messages

    def next_due(self, writer: Writer, now_ms: int) -> int:
        """Return when the first message of a level is due, NEVER if none waits."""
        heads = self._pending(writer.page.cursors())
        return min((self._head_due(level, at, now_ms) for level, at, _ in heads), default=NEVER)

    def holds(self) -> int:
        """Return the lowest log offset of what is still to be delivered: it has to stay.

        It is there for as long as the longest level; nothing is moved.
        """
        cursors = self._reader.cursors() or saved_cursors(self._layout)
        heads = (self._piece(level, at, at + 1) for level, at, _ in self._pending(cursors))
        # A damaged one holds everything until its turn has come, when it is passed over.
        starts = (0 if head is None else int(head.records.physical_offset[0]) for head in heads)
        return min(starts, default=EVERYTHING_MAY_GO)

    def _pending(self, cursors: Cursors) -> Iterator[tuple[int, int, int]]:
        """Yield each level that has messages to deliver, and their queue offsets [start, end)."""
        for level in self._used_levels():
            has = self._reader.system_offsets(SCHEDULE_TOPIC, level - 1)
            # Below the minimum messages are gone with their log files.
            start = max(cursors.get(level_word(level), 0), has.minimum)
            if start < has.maximum:
                yield level, start, has.maximum

    def _used_levels(self) -> list[int]:
        """Return those that ever had a message: most stores use few of them."""
        try:
            names = os.listdir(self._layout.topic_queues(SCHEDULE_TOPIC))
        except FileNotFoundError:
            return []
        levels = sorted(int(name) + 1 for name in names if name.isascii() and name.isdigit())
        return [level for level in levels if level <= len(self._delays_ms)]

    def _take(self, delivery: "_Delivery", level: int, start: int, end: int, now_ms: int) -> None:
        """Put into the parcel what is due of a level, as far as there is room."""
        end = min(end, start + MAX_MESSAGES - delivery.messages)
        piece = self._piece(level, start, end)
        if piece is None:
            _log.error("the message of delay level %d at offset %d is damaged", level, start)
            delivery.put(level, start, Copies([], 1, 1))
            return
        waits = self._due(piece, level, now_ms) > now_ms
        count = int(np.argmax(waits)) if waits.any() else len(waits)
        sums = np.cumsum(piece.records.sizes[:count])
        run = piece.records.head(
            max(int(np.searchsorted(sums, MAX_BYTES - delivery.bytes, side="right")), min(count, 1))
        )
        if len(run):
            copies = due_copies(
                run,
                self._reader.topics.all(),
                file_bytes=self._reader.identity.config.log_file_bytes,
                most_batches=MAX_BATCHES - len(delivery.batches),
            )
            delivery.put(level, start, copies)

    def _head_due(self, level: int, at: int, now_ms: int) -> int:
        head = self._piece(level, at, at + 1)
        return now_ms if head is None else int(self._due(head, level, now_ms)[0])

    def _due(self, piece: RecordSlice, level: int, now_ms: int) -> Ints:
        """Return when messages are due.

        What claims to wait longer than its level does was stored before the clock was set back:
        it is due at once, as in RocketMQ. But store times never decrease here, so it may also have
        been sent since; then it waits from when it was born.
        """
        delay = self._delays_ms[level - 1]
        due = piece.tags_codes
        ahead = due > now_ms + delay
        if not ahead.any():
            return due
        born = piece.records.field("born_timestamp")
        corrected = np.where(born > now_ms, now_ms, np.minimum(born + delay, due))
        return np.where(ahead, corrected, due)

    def _piece(self, level: int, start: int, end: int) -> RecordSlice | None:
        """Return the first messages of [start, end); None if not even the first can be read."""
        while start < end:
            with suppress(StoreDamagedError, OffsetOutOfRangeError):
                return next(self._reader.records(SCHEDULE_TOPIC, level - 1, start, end))
            end = start + (end - start) // 2
        return None


@dataclass
class _Delivery:
    """What one append delivers, and how far the levels have come with it."""

    batches: list[EncodedBatch] = field(default_factory=list)
    moves: dict[int, int] = field(default_factory=dict)
    messages: int = 0
    bytes: int = 0

    @property
    def has_room(self) -> bool:
        return (
            self.messages < MAX_MESSAGES
            and self.bytes < MAX_BYTES
            and len(self.batches) < MAX_BATCHES
            and len(self.moves) < MAX_MOVES
        )

    def put(self, level: int, start: int, copies: Copies) -> None:
        self.batches += copies.batches
        self.moves[level_word(level)] = start + copies.taken
        self.messages += copies.taken
        self.bytes += sum(batch.data.size for batch in copies.batches)

    def send(self, writer: Writer) -> None:
        """Append it; the caller is in a section."""
        if self.batches:
            # They had room when they were sent, and hold old files until they are delivered.
            writer.append(self.batches, moves=self.moves, make_room=False)
        elif self.moves:
            writer.move(self.moves)
