"""The views `topics`, with one row per topic, and `groups`, with one row per group and queue."""

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from pyrocket.engine.group_admin import Groups
from pyrocket.engine.reader import Reader
from pyrocket.errors import OffsetOutOfRangeError
from pyrocket.formats.system_topics import CLOSED_TO_SENDERS, SYSTEM_PREFIX
from pyrocket.views.parts import VIEW_COLUMNS

Row = dict[str, object]


def all_queues(reader: Reader) -> dict[str, list[int]]:
    """Return the queue ids of each topic: queues in the topic table, and queues that have files."""
    queues = {name: set(range(topic.read_queues)) for name, topic in reader.topics.all().items()}
    for name, queue_id in reader.queues_on_disk():
        queues.setdefault(name, set()).add(queue_id)
    return {name: sorted(ids) for name, ids in sorted(queues.items())}


def topics_table(reader: Reader, names: Collection[str] = ()) -> pa.Table:
    """Return all topics, or those in `names`, with the queues that ever had messages."""
    return _table("topics", _topics(reader, names))


def _topics(reader: Reader, names: Collection[str]) -> Iterator[Row]:
    known = reader.topics.all()
    for name, queue_ids in all_queues(reader).items():
        if names and name not in names:
            continue
        topic = known.get(name)
        row: Row = {"topic": name, "kind": kind_of(name)}
        if topic is not None:
            row |= {"perm": topic.perm, "readQueues": topic.read_queues}
            row["writeQueues"] = topic.write_queues
        queues = [queue for queue_id in queue_ids if (queue := _queue(reader, name, queue_id))]
        yield row | _summed(queues)


def _summed(queues: list[dict[str, int | None]]) -> Row:
    """Return the sums over a topic's queues."""
    first = [at for queue in queues if (at := queue["firstStoreTimestamp"]) is not None]
    last = [at for queue in queues if (at := queue["lastStoreTimestamp"]) is not None]
    return {
        "messages": sum((one["maxOffset"] or 0) - (one["minOffset"] or 0) for one in queues),
        "bytes": sum(one["bytes"] or 0 for one in queues),
        "firstStoreTimestamp": min(first, default=None),
        "lastStoreTimestamp": max(last, default=None),
        "queues": queues,
    }


def kind_of(topic: str) -> str:
    """Return "retry", "dead-letter", "system", or "user"."""
    if topic.startswith("%RETRY%"):
        return "retry"
    if topic.startswith("%DLQ%"):
        return "dead-letter"
    is_system = topic in CLOSED_TO_SENDERS or topic.startswith(SYSTEM_PREFIX)
    return "system" if is_system else "user"


def _queue(reader: Reader, topic: str, queue_id: int) -> dict[str, int | None] | None:
    """Return the row of a queue; None if it never had a message."""
    known = reader.system_offsets(topic, queue_id)
    if not known.maximum:
        return None
    is_empty = known.minimum == known.maximum
    ends = known.minimum, known.maximum - 1
    first, last = (None if is_empty else _stored(reader, topic, queue_id, at) for at in ends)
    return {
        "queueId": queue_id,
        "minOffset": known.minimum,
        "maxOffset": known.maximum,
        "bytes": reader.log_span(topic, queue_id, known.minimum, known.maximum).bytes,
        "firstStoreTimestamp": first,
        "lastStoreTimestamp": last,
    }


def groups_table(reader: Reader, groups: Groups, group: str = "") -> pa.Table:
    """Return one row per queue of each topic in which a group has committed offsets.

    A group without offsets has one row. Raises GroupNotFoundError.
    """
    names = [groups.get(group).name] if group else list(groups.all())
    queues, offsets = all_queues(reader), groups.offsets()
    rows = (row for name in names for row in _of_group(reader, name, offsets, queues))
    return _table("groups", rows)


def _of_group(
    reader: Reader,
    group: str,
    offsets: Mapping[tuple[str, str], Mapping[int, int]],
    queues: Mapping[str, list[int]],
) -> Iterator[Row]:
    known = {topic: committed for (topic, owner), committed in offsets.items() if owner == group}
    if not known:
        yield {"consumerGroup": group}
    for topic, committed in sorted(known.items()):
        for queue_id in sorted({*queues.get(topic, ()), *committed}):
            row: Row = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
            yield {**row, **_lag(reader, topic, queue_id, committed.get(queue_id))}


def _lag(reader: Reader, topic: str, queue_id: int, committed: int | None) -> Row:
    """Return a group's lag in a queue; without a committed offset, from the minimum offset.

    A committed offset is beyond the end of the queue if a recovery truncated the log, or if the
    store was restored from a copy that is older than its offset table.
    """
    known = reader.system_offsets(topic, queue_id)
    at = known.minimum if committed is None else committed
    start = min(max(at, known.minimum), known.maximum)
    return {
        "committedOffset": committed,
        "minOffset": known.minimum,
        "maxOffset": known.maximum,
        "lag": known.maximum - start,
        "lagBytes": reader.log_span(topic, queue_id, start, known.maximum).bytes,
        "lost": max(known.minimum - at, 0),
        "beyondEnd": max(at - known.maximum, 0),
        "nextStoreTimestamp": _stored(reader, topic, queue_id, start)
        if start < known.maximum
        else None,
    }


def _stored(reader: Reader, topic: str, queue_id: int, offset: int) -> int | None:
    """Return the store time of a message in µs; None if the message has been deleted."""
    try:
        return reader.store_time(topic, queue_id, offset) * 1000
    except OffsetOutOfRangeError:
        return None


def _table(view: str, rows: Iterator[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(VIEW_COLUMNS[view].items())))
