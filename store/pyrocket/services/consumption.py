"""The storage for the state of a broker's consumer groups, which `consumption_of` returns.

The broker manages the state. The state is stored as a snapshot, `pyrocket/pop.json`, and as later
messages of POP_TOPIC, each of which is one change. Log files with such messages are not deleted
until a later snapshot includes the changes.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyrocket.base.cached import Cached
from pyrocket.base.clock import Clock, steady_clock, system_clock
from pyrocket.disk.io import read_hint
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating_methods, translating_os_errors
from pyrocket.disk.shared_state import DISPATCHED
from pyrocket.engine.engine import Engine
from pyrocket.engine.hooks import EVERYTHING_MAY_GO
from pyrocket.engine.parts.group_lag import GroupStartTable
from pyrocket.engine.reader import read_undamaged
from pyrocket.errors import (
    GroupNotFoundError,
    OffsetOutOfRangeError,
    StoreDamagedError,
    StorePermissionError,
)
from pyrocket.filters.message_filter import EVERYTHING, MessageFilter
from pyrocket.formats.checked_json import decode_own
from pyrocket.formats.fastjson import PARSE_ERRORS, describe_error
from pyrocket.formats.record import SYS_DAMAGED
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.formats.system_topics import POP_TOPIC
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.groups import GroupOffsets, OffsetsByQueue, Subscriptions
from pyrocket.metadata.json_table import OwnFile
from pyrocket.metadata.topics import lacking_topics
from pyrocket.values.admin import GroupConfig, TopicConfig
from pyrocket.values.message import QueueOffsets, StoredMessage

MAX_BODY_BYTES = 4 << 20
"""Maximum bytes of records delivered together; the first record may be larger."""

MAX_SCAN = 16_384
"""Maximum messages examined together for matches of a filter: 0.1 s with an SQL filter."""

LACKS_ALL = -1
_SCAN_ROWS = 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fetched:
    """The selected records of one queue before queue offset `reached`, ascending.

    raw: The records as they are in the log.
    damaged: The offsets of the messages that could not be read.
    records: The records decoded, if the caller has asked for them.
    """

    raw: list[bytes]
    reached: int
    damaged: Sequence[int] = ()
    records: list[Record] = field(default_factory=list)


@translating_methods
class Consumption:
    """Stores the state of consumer groups. Safe to share between threads.

    saved_next: The first change that the snapshot lacks; None if unknown, LACKS_ALL without a valid
    snapshot. damaged: The number of times that a damaged message was skipped. starts: Where groups
    start in queues for which they have committed no offset.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._reader, self._layout = engine, engine.reader, engine.layout
        self._offsets, self.starts = GroupOffsets(engine.layout), GroupStartTable(engine)
        self.epochs = Epochs(engine.layout)
        self._subscriptions = Subscriptions(engine.layout, engine.clock)
        self._groups = Cached(self._subscriptions.table.stamp, self._subscriptions.all)
        self._committed = Cached(self._offsets.table.stamp, self._offsets.all)
        self._ends, self._ends_at = dict[tuple[str, int], int](), (-1, -1)
        self._reading = threading.Lock()
        self.saved_next: int | None = None
        self.damaged, self._counting = 0, threading.Lock()

    def now(self) -> int:
        """Return the time of the store's clock, epoch ms."""
        return self._engine.clock()

    @property
    def ages(self) -> Clock:
        """Counts the time that passes: `steady_clock`, or the store's clock if that is a test's."""
        clock = self._engine.clock
        return steady_clock if clock is system_clock else clock

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delay of each level, starting with level 1."""
        return tuple(self._engine.config.delay_levels_ms)

    def group(self, name: str) -> GroupConfig | None:
        """Return a group from `subscriptionGroup.json`; the file is read only if it has changed."""
        return self._groups().get(name)

    def consuming_group(self, name: str) -> GroupConfig:
        """Return a group that may consume. Raises GroupNotFoundError, StorePermissionError."""
        config = self.group(name)
        if config is None:
            raise no_group(name)
        if not config.consume_enabled:
            raise StorePermissionError(
                f"the consumer group {name!r} may not consume.",
                remedy="Allow it: pyrocket group alter --consume.",
            )
        return config

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic; the topic table is read only if topics have been created or deleted."""
        return self._engine.known_topics().get(name)

    def ensure_topics(self, queues: Mapping[str, int]) -> None:
        """Create the missing topics with these numbers of queues. May wait for the write lock."""
        if lacking_topics(
            queues, {name: config for name in queues if (config := self.topic(name))}
        ):
            with self._engine.writer.exclusive():
                self._engine.ensure_topics(queues)

    def check_fits(self, batch: EncodedBatch) -> None:
        """Raise MessageError (RECORD_TOO_LARGE) if a record does not fit in a log file."""
        self._engine.writer.check_fits([batch])

    def bounds(self, topic: str, queue_id: int) -> QueueOffsets:
        """Return the minimum and maximum offset of a queue."""
        return self._reader.system_offsets(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the maximum offset of a queue; it is read only if it may have changed."""
        queue = topic, queue_id
        with self._reading:
            self._forget_changed_ends()
            if queue not in self._ends:
                self._ends[queue] = self.bounds(topic, queue_id).maximum
            return self._ends[queue]

    def _forget_changed_ends(self) -> None:
        writer, (structure, end) = self._engine.writer, self._ends_at
        self._ends_at = writer.structure, writer.page[DISPATCHED]
        changed = writer.dispatcher.changed.between(end, self._ends_at[1])
        if structure != self._ends_at[0] or changed is None:
            self._ends.clear()
        for queue in changed or ():
            self._ends.pop(queue, None)

    def queues(self, prefix: str) -> list[tuple[str, int]]:
        """Return topic and queue id of all queues whose topics have a prefix."""
        on_disk = self._reader.files.queues.on_disk()
        return [queue for queue in on_disk if queue[0].startswith(prefix)]

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of a message, epoch ms. Raises OffsetOutOfRangeError."""
        return self._reader.store_time(topic, queue_id, offset)

    def watch_queues(self) -> None:
        """Start collecting the queues that `changed_queues` returns."""
        self._engine.writer.dispatcher.changed.watch()

    def changed_queues(self) -> list[tuple[str, int]]:
        """Return topic and queue id of the queues with new messages since the last call."""
        writer = self._engine.writer
        return writer.dispatcher.changed.take_new(writer.page[DISPATCHED])

    def fetch(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        where: MessageFilter,
        limit: int,
        max_bytes: int = MAX_BODY_BYTES,
        *,
        decode: bool = True,
    ) -> Fetched:
        """Return the first messages of [start, end) that `where` selects, at most `limit`.

        Stops when the records have `max_bytes`. Damaged messages are skipped, counted and logged.
        The checksums of bodies are verified only with `decode`.
        """
        known = self.bounds(topic, queue_id)
        start, end = max(start, known.minimum), min(end, known.maximum)
        records, raw = list[Record](), list[bytes]()
        step = most = limit if where.wants_all else max(limit, _SCAN_ROWS)
        while start < end and len(raw) < limit and max_bytes > 0:
            stop = min(end, start + step)
            try:
                fetched = self._read(
                    (topic, queue_id), start, stop, where, limit - len(raw), max_bytes
                )
                decoded = [decode_record(data) for data in fetched.raw] if decode else []
            except (StoreDamagedError, OffsetOutOfRangeError) as error:
                if stop - start > 1:
                    step = (stop - start) // 2
                    continue
                # A message that is out of range has expired.
                is_damaged = isinstance(error, StoreDamagedError)
                fetched, decoded = Fetched([], stop, [start] if is_damaged else []), []
            self._note_damaged(topic, queue_id, fetched.damaged)
            records += decoded
            raw += fetched.raw
            max_bytes -= sum(map(len, fetched.raw))
            start, step = fetched.reached, most
        return Fetched(raw, start, records=records)

    def read(self, topic: str, queue_id: int, offset: int) -> Record | None:
        """Return one message; None if it cannot be read."""
        records = self.fetch(topic, queue_id, offset, offset + 1, EVERYTHING, 1).records
        return records[0] if records else None

    def _read(
        self,
        place: tuple[str, int],
        start: int,
        end: int,
        where: MessageFilter,
        limit: int,
        max_bytes: int,
    ) -> Fetched:
        topic, queue_id = place
        config = TopicConfig(topic, queue_id + 1, queue_id + 1)
        raw, damaged, size = list[bytes](), list[int](), 0
        for piece in self._reader.slices(config, queue_id, start, end, where=where):
            fields = piece.records
            content, flags = memoryview(fields.buffer), fields.sys_flag & SYS_DAMAGED
            columns = (fields.starts, fields.sizes, fields.queue_offset, flags)
            for at, length, offset, is_damaged in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                if is_damaged:
                    damaged.append(offset)
                    continue
                raw.append(bytes(content[at : at + length]))
                size += length
                if len(raw) == limit or size >= max_bytes:
                    return Fetched(raw, offset + 1, damaged)
        return Fetched(raw, end, damaged)

    def message_of(self, record: Record, longest: int | None = None) -> StoredMessage | None:
        """Return a record as a message; None if its body is invalid (counted and logged).

        Raises LongBodyError if the body inflates to more than `longest` bytes.
        """
        try:
            return record.to_message(longest)
        except StoreDamagedError:
            self._note_damaged(record.topic, record.queue_id, [record.queue_offset])
            return None

    def _note_damaged(self, topic: str, queue_id: int, offsets: Sequence[int]) -> None:
        for offset in offsets:
            _log.error("message %d of queue %d of %s is damaged", offset, queue_id, topic)
        with self._counting:
            self.damaged += len(offsets)

    def dispatch(self) -> None:
        """Dispatch all published records: a killed process may have left some undispatched."""
        with self._engine.writer.exclusive(even_if_full=True):
            pass

    def flush(self) -> None:
        """Flush all messages appended before the call."""
        self._engine.writer.flush()

    def offsets(self) -> dict[tuple[str, str], OffsetsByQueue]:
        """Return all committed offsets by (topic, group); the file is read only if it has changed.

        The result must not be modified.
        """
        return self._committed()

    def offsets_stamp(self) -> object:
        """Return a value that changes whenever committed offsets change. Cheap."""
        return self._offsets.table.stamp()

    def change_offsets(self, edit: Callable[[dict[tuple[str, str], OffsetsByQueue]], bool]) -> None:
        """Change committed offsets durably; see `GroupOffsets.change_all`."""
        with self._engine.writer.exclusive():
            self._offsets.change_all(edit)

    def changes(self) -> QueueOffsets:
        """Return the offsets of the changes in the log: the range of POP_TOPIC's queue."""
        return self.bounds(POP_TOPIC, 0)

    def change_place(self, offset: int) -> int:
        """Return the log offset of a change; -1 if it is not in the log."""
        return int(self._reader.log_offsets_at(POP_TOPIC, 0, np.array([offset]))[0])

    def read_changes(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the born times and bodies of the changes [start, end).

        An unreadable change is logged and skipped.

        The messages of a skipped change are delivered again.
        """
        known = self._reader, POP_TOPIC, 0, start, end
        for piece in read_undamaged(*known, log_damaged=True, verify_crc=True):
            records = piece.records
            born = records.field("born_timestamp").tolist()
            yield from (
                (ms, body)
                for ms, body, flags in zip(
                    born, records.bodies().to_pylist(), records.sys_flag, strict=True
                )
                if not flags & SYS_DAMAGED
            )

    def load(self) -> dict[str, Any] | None:
        """Return the last snapshot; None if it is missing or cannot be read."""
        data = read_hint(self._layout.pop)
        if data is None:
            return None
        try:
            content: dict[str, Any] = decode_own(self._layout.pop, data)
            self.saved_next = int(content["next"])
        except PARSE_ERRORS as error:
            _log.error(
                "%s cannot be parsed (%s): messages after the committed offsets are received again",
                *(self._layout.pop, describe_error(error)),
            )
            return None
        return content

    def save(self, content: dict[str, Any]) -> None:
        """Replace the snapshot durably. `content["next"]` is the first later change.

        Raises StoreUnavailableError (WRITE_FAILED, DISK_FULL).
        """
        self._engine.writer.room.check_usable()
        with translating_os_errors(self._layout.root, "try again"):
            _pop_file(self._layout).save(content)
        self.saved_next = int(content["next"])

    def held_from(self) -> int:
        """Return the log offset of the first change that the snapshot lacks; see `Hooks.holds`."""
        if self.saved_next is None:
            self.load()
        known, first = self.changes(), self.saved_next or 0
        if first >= known.maximum:
            return EVERYTHING_MAY_GO
        with suppress(OffsetOutOfRangeError, StoreDamagedError):
            place = self.change_place(max(first, known.minimum))
            return place if place >= 0 else EVERYTHING_MAY_GO
        return EVERYTHING_MAY_GO


def no_group(name: str) -> GroupNotFoundError:
    """Return the error for a group that does not exist at a broker."""
    # The gate removes the remedy, which could suggest names of other users' groups.
    return GroupNotFoundError(
        f"there is no consumer group {name!r}; create it with `pyrocket group create`.",
        remedy="Or let the broker create groups: --auto-create-groups.",
    )


def check_pop_file(layout: Layout) -> None:
    """Raise StoreDamagedError if the snapshot cannot be read."""
    _pop_file(layout).read()


def _pop_file(layout: Layout) -> OwnFile[int]:
    remedy = (
        "Restore it from a copy, or remove it: then consumer groups receive messages again that"
        " they have acked."
    )
    return OwnFile(layout.pop, layout.scratch, lambda content: int(content["next"]), remedy)
