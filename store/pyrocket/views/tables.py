"""The views `topics`, with one row per topic, and `groups`, with one row per group and queue."""

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa

from pyrocket.engine.parts.group_admin import Groups
from pyrocket.engine.parts.group_lag import all_queues, positions
from pyrocket.engine.reader import Reader
from pyrocket.errors import OffsetOutOfRangeError
from pyrocket.formats.system_topics import CLOSED_TO_SENDERS, SYSTEM_PREFIX
from pyrocket.values.admin import GroupLag
from pyrocket.views.pending import VIEW_COLUMNS

ViewRow = dict[str, object]


def topics_table(reader: Reader, names: Collection[str] = ()) -> pa.Table:
    """Return all topics, or those in `names`, with the queues that ever had messages."""
    return view_table("topics", _topics(reader, names))


def _topics(reader: Reader, names: Collection[str]) -> Iterator[ViewRow]:
    known = reader.topics.all()
    for name, queue_ids in all_queues(reader).items():
        if names and name not in names:
            continue
        topic = known.get(name)
        row: ViewRow = {"topic": name, "kind": kind_of(name)}
        if topic is not None:
            row |= {"perm": topic.perm, "readQueues": topic.read_queues}
            row["writeQueues"] = topic.write_queues
        queues = [queue for queue_id in queue_ids if (queue := _queue(reader, name, queue_id))]
        yield row | _summed(queues)


def _summed(queues: list[dict[str, int | None]]) -> ViewRow:
    """Return the sums over a topic's queues."""
    first = [at for queue in queues if (at := queue["firstStoreTimestamp"]) is not None]
    last = [at for queue in queues if (at := queue["lastStoreTimestamp"]) is not None]
    return {
        "messages": sum((queue["maxOffset"] or 0) - (queue["minOffset"] or 0) for queue in queues),
        "bytes": sum(queue["bytes"] or 0 for queue in queues),
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
    """Return one row per queue of each topic in which a group has committed offsets or a start.

    A group without any has one row. Raises GroupNotFoundError.
    """
    names = [groups.get(group).name] if group else list(groups.all())
    rows: dict[str, list[ViewRow]] = {name: [] for name in names}
    wanted = names[0] if group else ""
    for lag in positions(reader, groups.offsets(), groups.starts(), wanted):
        rows.setdefault(lag.group, []).append(_lag(reader, lag))
    without: dict[str, list[ViewRow]] = {name: [{"consumerGroup": name}] for name in names}
    return view_table("groups", (row for name in rows for row in rows[name] or without[name]))


def _lag(reader: Reader, one: GroupLag) -> ViewRow:
    """Return a group's lag in a queue.

    A committed offset is beyond the end of the queue if a recovery truncated the log, or if the
    store was restored from a copy that is older than its offset table.
    """
    queue = one.topic, one.queue_id
    return {
        "consumerGroup": one.group,
        "topic": one.topic,
        "queueId": one.queue_id,
        "committedOffset": one.committed,
        "minOffset": one.minimum,
        "maxOffset": one.maximum,
        "lag": one.lag,
        "lagBytes": reader.log_span(*queue, one.start, one.maximum).bytes,
        "lost": one.lost,
        "beyondEnd": one.beyond_end,
        "nextStoreTimestamp": _stored(reader, *queue, one.start) if one.lag else None,
    }


def _stored(reader: Reader, topic: str, queue_id: int, offset: int) -> int | None:
    """Return the store time of a message in µs; None if the message has been deleted."""
    try:
        return reader.store_time(topic, queue_id, offset) * 1000
    except OffsetOutOfRangeError:
        return None


def view_table(view: str, rows: Iterable[ViewRow]) -> pa.Table:
    """Return rows as a table with all columns of a view; times are in µs."""
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(VIEW_COLUMNS[view].items())))
