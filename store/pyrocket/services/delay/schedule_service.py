"""Delivery of the delay levels: RocketMQ's `ScheduleMessageService`.

The messages of level n are in queue n - 1 of SCHEDULE_TOPIC_XXXX. All messages of a level have the
same delay, so they become due in the order of the queue; the tags code of a queue entry is the due
time. Each level has a cursor in the shared state. The append that delivers a message also advances
the cursor, so each message is delivered once, even after a crash.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import MAX_MOVES, NEVER, level_field
from pyrocket.engine.hooks import EVERYTHING_MAY_GO, Hooks
from pyrocket.engine.reader import Reader, first_undamaged
from pyrocket.engine.writer import Writer
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.metadata.service_cursors import Cursors, saved_cursors
from pyrocket.services.delay.copies import DueCopies, due_copies

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeliveryLimits:
    """Limits of one append, during which other writers wait for the write lock."""

    messages: int = 4096
    bytes: int = 8 * 1024 * 1024
    batches: int = 256


class ScheduleService:
    """Delivers the delay levels of one store; see `service_runner.Service`."""

    def __init__(
        self, layout: Layout, reader: Reader, limits: DeliveryLimits = DeliveryLimits()
    ) -> None:
        self._layout, self._reader, self._limits = layout, reader, limits
        self._first_level = 1

    def hook_into(self, hooks: Hooks) -> None:
        """Keep log files that hold pending messages."""
        hooks.holds["delayed messages that are still to be delivered"] = self.lowest_pending

    @property
    def _delays_ms(self) -> Sequence[int]:
        return self._reader.identity.config.delay_levels_ms

    def deliver_due(self, writer: Writer, now_ms: int) -> int:
        """Deliver up to `limits.messages` due messages; return their number.

        The messages of a level are delivered in the order of its queue.
        """
        delivery = _Delivery(self._limits)
        with writer.try_exclusive():
            pending = list(self._pending(writer.page.cursors()))
            # A level that fills a whole append must not delay the other levels.
            for level, start, end in sorted(pending, key=lambda span: span[0] < self._first_level):
                if delivery.has_room:
                    self._take(delivery, level, start, end, now_ms)
                    self._first_level = 1 if delivery.has_room else level + 1
            delivery.append(writer)
        return delivery.messages

    def next_due(self, writer: Writer, now_ms: int) -> int:
        """Return the earliest due time of all levels, or NEVER if no message is pending."""
        heads = self._pending(writer.page.cursors())
        return min((self._head_due(level, at, now_ms) for level, at, _ in heads), default=NEVER)

    def lowest_pending(self) -> int:
        """Return the lowest log offset of a pending message; later log files are not deleted.

        Messages are not re-appended, because a message is pending for at most the delay of its
        level.
        """
        cursors = self._reader.cursors() or saved_cursors(self._layout)
        heads = (self._read(level, at, at + 1) for level, at, _ in self._pending(cursors))
        # A damaged message prevents all deletions until it is due and skipped.
        starts = (0 if head is None else int(head.records.physical_offset[0]) for head in heads)
        return min(starts, default=EVERYTHING_MAY_GO)

    def _pending(self, cursors: Cursors) -> Iterator[tuple[int, int, int]]:
        """Yield each level with pending messages, and their queue offsets [start, end)."""
        for level in self._used_levels():
            has = self._reader.system_offsets(SCHEDULE_TOPIC, level - 1)
            # Messages before the minimum were deleted with their log files.
            start = max(cursors.get(level_field(level), 0), has.minimum)
            if start < has.maximum:
                yield level, start, has.maximum

    def _used_levels(self) -> list[int]:
        """Return the levels that have ever had a message; most stores use only a few."""
        queue_ids = self._reader.files.queues.of_topic(SCHEDULE_TOPIC)
        return [queue_id + 1 for queue_id in queue_ids if queue_id < len(self._delays_ms)]

    def _take(self, delivery: "_Delivery", level: int, start: int, end: int, now_ms: int) -> None:
        """Add due messages of a level to the append while it has room."""
        end = min(end, start + self._limits.messages - delivery.messages)
        piece = self._read(level, start, end)
        if piece is None:
            _log.error(
                "message %d of delay level %d is damaged and cannot be delivered", start, level
            )
            delivery.put(level, start, DueCopies([], 1, 1))
            return
        pending = self._due(piece, level, now_ms) > now_ms
        count = int(np.argmax(pending)) if pending.any() else len(pending)
        sums = np.cumsum(piece.records.sizes[:count])
        room = self._limits.bytes - delivery.bytes
        run = piece.records.head(max(int(np.searchsorted(sums, room, side="right")), min(count, 1)))
        if len(run):
            copies = due_copies(
                run,
                self._reader.topics.all(),
                file_bytes=self._reader.identity.config.log_file_bytes,
                max_batches=self._limits.batches - len(delivery.batches),
            )
            delivery.put(level, start, copies)

    def _head_due(self, level: int, at: int, now_ms: int) -> int:
        head = self._read(level, at, at + 1)
        return now_ms if head is None else int(self._due(head, level, now_ms)[0])

    def _due(self, piece: RecordSlice, level: int, now_ms: int) -> Ints:
        """Return the due times of messages.

        A message whose due time is further away than its level's delay was usually stored before
        the clock was set back. Such a message is due at once, as in RocketMQ. Because store times
        never decrease here, the message may also have been sent after the clock was set back; then
        its delay starts at its born time.
        """
        delay = self._delays_ms[level - 1]
        due = piece.tags_codes
        ahead = due > now_ms + delay
        if not ahead.any():
            return due
        born = piece.records.field("born_timestamp")
        corrected = np.where(born > now_ms, now_ms, np.minimum(born + delay, due))
        return np.where(ahead, corrected, due)

    def _read(self, level: int, start: int, end: int) -> RecordSlice | None:
        return first_undamaged(self._reader, SCHEDULE_TOPIC, level - 1, start, end)


@dataclass
class _Delivery:
    """One append: the copies, and the new cursors of the levels."""

    limits: DeliveryLimits
    batches: list[EncodedBatch] = field(default_factory=list)
    moves: dict[int, int] = field(default_factory=dict)
    messages: int = 0
    bytes: int = 0

    @property
    def has_room(self) -> bool:
        return (
            self.messages < self.limits.messages
            and self.bytes < self.limits.bytes
            and len(self.batches) < self.limits.batches
            and len(self.moves) < MAX_MOVES
        )

    def put(self, level: int, start: int, copies: DueCopies) -> None:
        self.batches += copies.batches
        self.moves[level_field(level)] = start + copies.taken
        self.messages += copies.taken
        self.bytes += sum(batch.data.size for batch in copies.batches)

    def append(self, writer: Writer) -> None:
        """Append the copies; the caller must hold the write lock."""
        if self.batches:
            # Allowed on a full disk: until they are delivered, messages prevent the deletion of
            # files.
            writer.append(self.batches, moves=self.moves, make_room=False)
        elif self.moves:
            writer.move(self.moves)
