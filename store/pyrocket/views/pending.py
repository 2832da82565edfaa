"""Plans and reads pending messages: scheduled messages and undecided half messages.

A plan lists ranges of RocketMQ's own topics, which do not change while messages are delivered. Its
ranges may be read by other processes. The topic and queue of a pending message are its destination.
Its queue offset is its offset in the system topic in which it is stored.

`VIEW_COLUMNS` has the columns of the rows of the other views.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.base.arguments import check_texts, check_type
from pyrocket.disk.shared_state import level_field
from pyrocket.engine.engine import Engine
from pyrocket.errors import InvalidInputError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.properties import TIMER_OUT_MS
from pyrocket.formats.property_columns import PropertyColumns, numbers, real_places
from pyrocket.formats.record_columns import SCAN_COLUMNS, check_columns
from pyrocket.formats.record_slice import RecordSlice, decode_with
from pyrocket.formats.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.formats.timer_entry import TimerEntries
from pyrocket.metadata.service_cursors import saved_cursors
from pyrocket.services.transactions.half_messages import read_half_messages
from pyrocket.values.admin import TopicConfig
from pyrocket.values.source import PendingRange

PendingKind = Literal["scheduled", "half"]
"""`scheduled` messages are delivered when they are due, `half` messages when they are committed."""

MAX_MESSAGES = 16_384
"""Maximum number of messages in one range of a plan."""

_MAX_GAP = 256
"""Maximum number of other messages between two messages of a range; a scan skips them."""

DUE = "dueTimestamp"
PENDING_COLUMNS: dict[str, pa.DataType] = {**SCAN_COLUMNS, DUE: pa.timestamp("us", "UTC")}
"""Every column that a scan of pending messages can return, with its Arrow type.

Half messages have no `dueTimestamp`.
"""

_MS = "^[0-9]{1,15}$"


class PendingMessages:
    """Plans and reads the pending messages of one store, which may be read-only."""

    def __init__(self, engine: Engine, timers: Callable[[], TimerEntries]) -> None:
        """`timers` returns the pending timers; see `formats.timer_entry`."""
        self._layout, self._reader, self._timers = engine.layout, engine.reader, timers

    def plan(self, kind: PendingKind) -> list[PendingRange]:
        """Return the ranges of all messages of a kind that are pending now."""
        if kind not in get_args(PendingKind):
            raise InvalidInputError(
                f"{kind!r} is not a kind of pending messages.",
                remedy=f"Use one of {list(get_args(PendingKind))}.",
                code="PENDING_KIND",
            )
        if kind == "half":
            undecided = read_half_messages(self._reader, self._layout)
            offsets = np.array([half.queue_offset for half in undecided], np.int64)
            return list(_ranges(HALF_TOPIC, offsets))
        timers = self._timers()["queue_offset"].astype(np.int64)
        return [*self._levels(), *_ranges(TIMER_TOPIC, np.sort(timers))]

    def scan(
        self, part: PendingRange, topics: Sequence[str], columns: Sequence[str], *, verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range for these topics, or for all topics if empty."""
        check_type(PendingRange, "Use a range that `Store.views.pending` returned.", part=part)
        check_texts(topics=topics)
        known = [name for name in PENDING_COLUMNS if name != DUE or part.topic != HALF_TOPIC]
        check_columns(columns, known)
        build = partial(_build_batch, columns=columns, verify_crc=verify_crc)
        return decode_with(build, self._slices(part, topics))

    def _slices(self, part: PendingRange, topics: Sequence[str]) -> Iterator[RecordSlice]:
        chosen = np.frombuffer(part.offsets, np.int64) if part.offsets else None
        for piece in self._reader.records(part.topic, part.queue_id, part.start, part.end):
            rows = _rows_for(piece, topics)
            if chosen is not None:
                rows = rows[np.isin(rows + piece.first_offset, chosen)]
            yield piece.part(rows)

    def _levels(self) -> Iterator[PendingRange]:
        count = len(self._reader.identity.config.delay_levels_ms)
        cursors = self._reader.cursors() or saved_cursors(self._layout)
        offsets = self._reader.offsets(TopicConfig(SCHEDULE_TOPIC, count, count))
        for queue_id, known in offsets.items():
            start = max(cursors.get(level_field(queue_id + 1), 0), known.minimum)
            for first in range(start, known.maximum, MAX_MESSAGES):
                end = min(first + MAX_MESSAGES, known.maximum)
                yield PendingRange(SCHEDULE_TOPIC, queue_id, first, end)


def _ranges(topic: str, offsets: Ints) -> Iterator[PendingRange]:
    """Yield ranges with these ascending offsets of queue 0."""
    for near in np.split(offsets, np.flatnonzero(np.diff(offsets) > _MAX_GAP) + 1):
        for first in range(0, len(near), MAX_MESSAGES):
            batch = near[first : first + MAX_MESSAGES]
            start, end = int(batch[0]), int(batch[-1]) + 1
            chosen = b"" if end - start == len(batch) else batch.tobytes()
            yield PendingRange(topic, 0, start, end, chosen)


def _rows_for(part: RecordSlice, topics: Sequence[str]) -> Ints:
    """Return the row numbers of messages for the topics, or for any topic if empty."""
    places = real_places(part.records.property_columns)
    wanted = [code for code, name in enumerate(places.names) if not topics or name in topics]
    return np.flatnonzero(np.isin(places.codes, wanted) & (places.queue_ids >= 0))


def _build_batch(part: RecordSlice, columns: Sequence[str], *, verify_crc: bool) -> pa.RecordBatch:
    """Return pending messages as columns; only the first rows if the inflated bodies are large."""
    plain = [name for name in columns if name in SCAN_COLUMNS] or ["queueOffset"]
    batch = part.build(plain, verify_crc=verify_crc)
    properties = part.records.head(batch.num_rows).property_columns
    places = real_places(properties)
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    if "topic" in columns:
        arrays["topic"] = pa.array(places.names, pa.string()).take(pa.array(places.codes))
    if "queueId" in columns:
        arrays["queueId"] = pa.array(places.queue_ids.astype(np.int32))
    if DUE in columns:
        arrays[DUE] = _due(properties, part.tags_codes[: batch.num_rows])
    schema = pa.schema([(name, PENDING_COLUMNS[name]) for name in columns])
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)


def _due(properties: PropertyColumns, tags_codes: Ints) -> pa.TimestampArray:
    """Return the due times, from the property of a timer or the tags code of a delayed message."""
    own = properties.column(TIMER_OUT_MS)
    due = np.where(pc.is_valid(own).to_numpy(zero_copy_only=False), numbers(own, _MS), tags_codes)
    return pa.array(due * 1000).view(PENDING_COLUMNS[DUE])


_TIMESTAMP = pa.timestamp("us", "UTC")

IN_QUEUE = "inQueue"
"""The column that is true if the queue of a record has an entry that points to the record."""

GROUP, ORIGIN_TOPIC, ORIGIN_ID = "consumerGroup", "originTopic", "originMsgId"
CONSUMED = "consumed"

_SENT_BACK = {GROUP: pa.string(), ORIGIN_TOPIC: pa.string(), ORIGIN_ID: pa.string()}

_QUEUE = pa.struct(
    {
        "queueId": pa.int32(),
        "minOffset": pa.int64(),
        "maxOffset": pa.int64(),
        "bytes": pa.int64(),
        "firstStoreTimestamp": _TIMESTAMP,
        "lastStoreTimestamp": _TIMESTAMP,
    }
)
"""The columns of a queue of a topic; queues that never had a message are omitted."""

VIEW_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "commitlog": {**SCAN_COLUMNS, IN_QUEUE: pa.bool_()},
    "retry": {**SCAN_COLUMNS, **_SENT_BACK, CONSUMED: pa.bool_(), DUE: _TIMESTAMP},
    "dlq": {**SCAN_COLUMNS, **_SENT_BACK},
    "groups": {
        GROUP: pa.string(),
        "topic": pa.string(),
        "queueId": pa.int32(),
        "committedOffset": pa.int64(),
        "minOffset": pa.int64(),
        "maxOffset": pa.int64(),
        "lag": pa.int64(),
        "lagBytes": pa.int64(),
        "lost": pa.int64(),
        "beyondEnd": pa.int64(),
        "nextStoreTimestamp": _TIMESTAMP,
    },
    "topics": {
        "topic": pa.string(),
        "kind": pa.string(),
        "perm": pa.int32(),
        "readQueues": pa.int32(),
        "writeQueues": pa.int32(),
        "messages": pa.int64(),
        "bytes": pa.int64(),
        "firstStoreTimestamp": _TIMESTAMP,
        "lastStoreTimestamp": _TIMESTAMP,
        "queues": pa.list_(_QUEUE),
    },
}
"""View → column → Arrow type."""
