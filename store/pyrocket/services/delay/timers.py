"""`Store.timers`: lists and cancels timers, messages that are due at a given time."""

import logging
from dataclasses import dataclass

import pyarrow as pa

from pyrocket.base.arguments import check_text, check_type, check_whole
from pyrocket.disk.io import SMALL_FILE_BYTES, read_or_none
from pyrocket.disk.os_errors import translating_methods
from pyrocket.disk.shared_state import TIMER_QUEUE_OFFSET
from pyrocket.engine.delayed_routing import Destination
from pyrocket.engine.engine import Engine, lazy_property
from pyrocket.engine.hooks import Hooks
from pyrocket.engine.parts.key_lookup import Lookup
from pyrocket.engine.writer import Writer
from pyrocket.errors import PyrocketError
from pyrocket.formats.java_timers import decode_timer_check, delivered_by
from pyrocket.formats.properties import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
    encode_properties,
)
from pyrocket.formats.property_columns import PropertyColumns, real_places
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import TimerEntries, due_times
from pyrocket.index.queues.record_fetch import read_scattered
from pyrocket.metadata.service_cursors import read_cursors
from pyrocket.services.delay.copies import copies_to_keep
from pyrocket.services.delay.java_handover import JavaHandover
from pyrocket.services.delay.pending_timers import TimerProgress, read_pending, read_second
from pyrocket.services.delay.timer_queue import ordered
from pyrocket.services.delay.timer_service import TimerService
from pyrocket.values.message import Message, StoredMessage

_log = logging.getLogger(__name__)

_TIMES = (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_OUT_MS)


@dataclass(frozen=True, kw_only=True)
class PendingTimer:
    """A pending message.

    topic, queue_id: the destination. due_ms: the delivery time, epoch ms.
    queue_offset: its offset in the timer topic.
    """

    topic: str
    queue_id: int
    msg_id: str | None
    due_ms: int
    queue_offset: int


@translating_methods
class Timers:
    """The timers of one store. All methods except `cancel` also work on a read-only store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._layout, self._reader, self._clock = engine.layout, engine.reader, engine.clock
        self.service = TimerService(self._layout, self._reader)

    @lazy_property
    def _lookup(self) -> Lookup:
        return Lookup(self._engine)

    def hook_into(self, hooks: Hooks) -> None:
        """Re-append timers before log files are deleted; write a broker's files at shutdown."""
        hooks.queues_touched_by_cleanup.append(self._queues_touched_by_cleanup)
        hooks.before_removal.append(
            lambda log_start: self._keep(self._engine.writer_in_hook, log_start)
        )
        hooks.before_clean_shutdown.append(lambda: self._hand_over(self._engine.writer_in_hook))

    def count(self) -> int:
        """Return the number of pending messages. Reads 48 bytes per message."""
        return len(self.entries())

    def next_due(self) -> int | None:
        """Return the earliest due time, epoch ms; None if no message is pending."""
        entries = self.entries()
        return int(entries["due"][0]) if len(entries) else None

    def pending(self, limit: int = 100, after: PendingTimer | None = None) -> list[PendingTimer]:
        """Return pending messages in order of due time, from the first message or after `after`.

        limit: maximum number of messages. after: the last message of the previous call.

        Raises OptionError for an invalid limit. Example::

            for timer in store.timers.pending(limit=10):
                print(timer.topic, timer.msg_id, timer.due_ms)
        """
        check_whole("limit", limit)
        if after is not None:
            check_type(PendingTimer, "Use a timer that `pending` returned.", after=after)
        entries = self.entries()
        if after is not None:
            later = entries["queue_offset"] > after.queue_offset
            same_time = entries["due"] == after.due_ms
            entries = entries[(entries["due"] > after.due_ms) | same_time & later]
        return sorted(
            self._read(entries[:limit]), key=lambda timer: (timer.due_ms, timer.queue_offset)
        )

    def entries(self) -> TimerEntries:
        """Return the pending timers by due time and queue offset; see `formats.timer_entry`."""
        cursors = self._reader.cursors()
        end = self._reader.system_offsets(TIMER_TOPIC).maximum
        if cursors:
            return self.service.pending(cursors, end).pending
        # Never opened for writing: a copy, or a RocketMQ broker's store.
        pending = self.service.pending(read_cursors(self._layout), end).pending
        java = decode_timer_check(read_or_none(self._layout.timer_check, SMALL_FILE_BYTES) or b"")
        return pending[~delivered_by(java, pending)]

    def cancel(self, topic: str, msg_id: str) -> bool:
        """Cancel the message with this id for `topic`; return False if it is not pending.

        The cancellation is appended to the log and is as durable as a message. Raises
        StoreReadOnlyError, StoreLockedError.
        """
        check_text(topic=topic, msg_id=msg_id)
        writer = self._engine.writer
        timers = self._lookup.query(TIMER_TOPIC, msg_id)
        matching = [timer for timer in timers if _is_for(timer, topic, msg_id)]
        with writer.exclusive():
            while matching and self.service.index_new(writer):
                pass
            pending = [timer for timer in matching if self._is_pending(writer, timer)]
            if pending:
                writer.append([self._cancellation(pending[-1])])
        if pending:
            writer.flush_as_configured()
        return bool(pending)

    def _is_pending(self, writer: Writer, message: StoredMessage) -> bool:
        block = pa.array([encode_properties(message.properties)], pa.binary())
        due = int(due_times(PropertyColumns(block))[0])
        progress = TimerProgress.of(writer.page.cursors())
        return message.queue_offset in self.service.read_or_rebuild(
            writer, lambda: read_second(self.service.index, progress, due).pending["queue_offset"]
        )

    def _cancellation(self, message: StoredMessage) -> EncodedBatch:
        """Return the record that cancels a message in RocketMQ 5: it is due in the same second."""
        own = message.properties
        kept = {name: own[name] for name in (*_TIMES, REAL_TOPIC, REAL_QID) if name in own}
        to = Destination(TIMER_TOPIC, 0, {TIMER_DEL_UNIQKEY: own[UNIQ_KEY], **kept})
        cancels = Message(topic=TIMER_TOPIC, body=own[UNIQ_KEY].encode())
        return self._engine.encoder.encode_to(cancels, to)

    def _keep(self, writer: Writer, log_start: int) -> None:
        """Re-append the pending timers before `log_start`; the caller must hold the write lock."""
        while self.service.index_new(writer):
            pass
        progress = TimerProgress.of(writer.page.cursors())
        pending = self.service.read_or_rebuild(
            writer, lambda: read_pending(self.service.index, progress)
        )
        for batch in copies_to_keep(self.service.log, pending, log_start):
            writer.append([batch], make_room=False)

    def _queues_touched_by_cleanup(self, log_start: int) -> set[tuple[str, int]]:
        affected = (self.entries()["physical_offset"] < log_start).any()
        return {(TIMER_TOPIC, 0)} if affected else set()

    def _hand_over(self, writer: Writer) -> None:
        while self.service.index_new(writer):
            pass
        if writer.page[TIMER_QUEUE_OFFSET]:
            progress, now = TimerProgress.of(writer.page.cursors()), self._clock()
            first_due = self.service.next_due(writer, now)
            # Recovery relies on the deliveries recorded in these files, so they must be durable.
            writer.flush()
            try:
                over = JavaHandover(self._layout, self.service)
                self.service.read_or_rebuild(writer, lambda: over.write(progress, first_due, now))
            except (PyrocketError, OSError) as error:
                # The store itself is complete; only a broker reads these files.
                _log.warning("a RocketMQ broker may deliver timers twice: %s", error)

    def _read(self, entries: TimerEntries) -> list[PendingTimer]:
        timers, places, sizes = ordered(entries)
        scattered = read_scattered(self.service.log, places, sizes)
        columns = scattered.fields().property_columns
        ids, targets = columns.column(UNIQ_KEY).to_pylist(), real_places(columns)
        return [
            PendingTimer(
                topic=targets.names[code] if code >= 0 else "",
                queue_id=int(queue_id),
                msg_id=msg_id,
                due_ms=int(entry["due"]),
                queue_offset=int(entry["queue_offset"]),
            )
            for entry, msg_id, code, queue_id in zip(
                timers[scattered.at], ids, targets.codes, targets.queue_ids, strict=True
            )
        ]


def _is_for(message: StoredMessage, topic: str, msg_id: str) -> bool:
    """Return whether the message is the timer itself rather than its cancellation."""
    own = message.properties
    named = own.get(UNIQ_KEY) == msg_id and own.get(REAL_TOPIC) == topic
    return named and TIMER_DEL_UNIQKEY not in own
