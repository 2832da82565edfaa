"""The views `retry` and `dlq`: messages that consumers sent back, and dead letters.

A consumer that fails sends the message back. The broker appends a copy to the topic %RETRY%<group>
after a growing delay, during which the copy is pending like any delayed message. After the last
retry, the broker appends a copy to %DLQ%<group>. A copy has the original's body and properties;
RETRY_TOPIC is the original's topic, ORIGIN_MESSAGE_ID its offset id. Source:
`SendMessageProcessor.asyncConsumerSendMsgBack`, `MixAll`, and `KeyBuilder` for pop consumers of
RocketMQ 5, whose retry topics also contain the topic's name.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.engine.parts.group_admin import Groups
from pyrocket.engine.parts.group_lag import all_queues
from pyrocket.engine.reader import Reader
from pyrocket.formats.record_columns import SCAN_COLUMNS
from pyrocket.formats.record_slice import decode_slices
from pyrocket.formats.system_topics import DLQ_PREFIX, RETRY_PREFIX
from pyrocket.values.admin import TopicConfig
from pyrocket.values.source import PendingRetryPart, RetryPart
from pyrocket.views.pending import (
    CONSUMED,
    DUE,
    GROUP,
    ORIGIN_ID,
    ORIGIN_TOPIC,
    VIEW_COLUMNS,
    PendingMessages,
)

_PREFIXES = {"retry": RETRY_PREFIX, "dlq": DLQ_PREFIX}
_MAX_MESSAGES = 65_536
_OF_PROPERTIES = {ORIGIN_TOPIC: "RETRY_TOPIC", ORIGIN_ID: "ORIGIN_MESSAGE_ID"}
_SYSTEM = "systemProperties"


def group_of(topic: str, groups: Collection[str], topics: Collection[str]) -> str:
    """Return the group of a retry or dead-letter topic; "" for any other topic."""
    prefix = next(
        (candidate for candidate in _PREFIXES.values() if topic.startswith(candidate)), ""
    )
    name = topic.removeprefix(prefix)
    if not prefix or name in groups:
        return name if prefix else ""
    group, plus, _ = name.partition("+")
    if plus:
        return group
    owners = [owner for owner in groups if name.removeprefix(f"{owner}_") in topics]
    return max(owners, key=len, default=name)


def retry_parts(reader: Reader, groups: Groups, view: str, group: str) -> Iterator[RetryPart]:
    """Yield parts of the retry or dead-letter queues of all groups, or of one group."""
    queues, offsets = all_queues(reader), groups.offsets()
    for topic, owner in _owned(queues, groups, view, group).items():
        committed = offsets.get((topic, owner), {})
        for queue_id in queues[topic]:
            known = reader.system_offsets(topic, queue_id)
            for start in range(known.minimum, known.maximum, _MAX_MESSAGES):
                end = min(start + _MAX_MESSAGES, known.maximum)
                weight = reader.log_span(topic, queue_id, start, end).bytes
                reached = committed.get(queue_id, 0)
                yield RetryPart(topic, owner, queue_id, start, end, reached, weight)


def pending_retry_parts(
    reader: Reader, groups: Groups, pending: PendingMessages, group: str
) -> Iterator[PendingRetryPart]:
    """Yield the ranges of scheduled messages, some of which may be for retry topics."""
    owned = _owned(all_queues(reader), groups, "retry", group)
    if owned:
        yield from (PendingRetryPart(part, owned) for part in pending.plan("scheduled"))


def _owned(names: Collection[str], groups: Groups, view: str, group: str) -> dict[str, str]:
    """Return topic → group for the topics of a view."""
    known = groups.all()
    owners = {
        topic: group_of(topic, known, names) for topic in names if topic.startswith(_PREFIXES[view])
    }
    if group:
        groups.get(group)  # Raises GroupNotFoundError.
    return {topic: owner for topic, owner in owners.items() if group in ("", owner)}


def read_retries(
    reader: Reader, part: RetryPart, columns: Sequence[str], *, verify_crc: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a part as columns; raises the errors of a scan."""
    queues = part.queue_id + 1
    topic = TopicConfig(part.topic, queues, queues)
    slices = reader.slices(topic, part.queue_id, part.start, part.end)
    for batch in decode_slices(slices, _asked(columns), verify_crc=verify_crc):
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        count = batch.num_rows
        arrays[GROUP] = pa.repeat(pa.scalar(part.group, pa.string()), count)
        arrays[CONSUMED] = pc.less(arrays["queueOffset"], part.committed)
        arrays[DUE] = pa.nulls(count, VIEW_COLUMNS["retry"][DUE])
        yield _with_origin(arrays, columns)


def read_pending_retries(
    pending: PendingMessages, part: PendingRetryPart, columns: Sequence[str], *, verify_crc: bool
) -> Iterator[pa.RecordBatch]:
    """Yield a part's messages for retry topics, with their queue offsets in the system topic."""
    asked = [*_asked(columns), *(name for name in (DUE,) if name in columns)]
    for batch in pending.scan(part.pending, [*part.groups], asked, verify_crc=verify_crc):
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays[GROUP] = _mapped(arrays["topic"], part.groups)
        arrays[CONSUMED] = pa.repeat(pa.scalar(False), batch.num_rows)
        yield _with_origin(arrays, columns)


def _asked(columns: Sequence[str]) -> list[str]:
    """Return the columns of a scan from which the columns of the view are built."""
    plain = [name for name in columns if name in SCAN_COLUMNS]
    own = ["topic", "queueOffset"]
    if not _OF_PROPERTIES.keys().isdisjoint(columns):
        own.append(_SYSTEM)
    return list(dict.fromkeys([*plain, *own]))


def _with_origin(arrays: dict[str, pa.Array], columns: Sequence[str]) -> pa.RecordBatch:
    for name, of in _OF_PROPERTIES.items():
        if name in columns:
            arrays[name] = pc.map_lookup(arrays[_SYSTEM], pa.scalar(of), "first")
    kinds = VIEW_COLUMNS["retry"]
    schema = pa.schema([(name, kinds[name]) for name in columns])
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)


def _mapped(texts: pa.StringArray, names: Mapping[str, str]) -> pa.StringArray:
    coded = texts.dictionary_encode()
    others = [names[text] for text in coded.dictionary.to_pylist()]
    return pa.array(others, pa.string()).take(coded.indices)
