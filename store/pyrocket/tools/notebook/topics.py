"""Topics and their queues: how much is in them, since when, and how it came."""

from itertools import pairwise

from pyrocket.formats.system_topics import CLOSED_TO_SENDERS, MADE_BY_BROKERS, SYSTEM_PREFIX
from pyrocket.message import QueueOffsets
from pyrocket.store import Store
from pyrocket.tools.notebook.looking import StoreOrPath, looking_at, named, stored_at_ms, utc
from pyrocket.tools.notebook.table import Table

_BARS = "▁▂▃▄▅▆▇█"
_STEPS = 16


def topics(store: StoreOrPath = None, *, system: bool = False) -> Table:
    """Return the topics; RocketMQ's own only with `system`.

    bytes: about what the messages take in the log. first, last: when the oldest and the newest
    message was stored, UTC. trend: messages from first to last, in 16 equal parts of the time.
    """
    with looking_at(store) as opened:
        known = [name for name in sorted(opened.topics()) if system or not _is_system(name)]
        rows = [_topic(opened, name) for name in known]
        columns = ("topic", "queues", "messages", "bytes", "first", "last", "trend")
        return Table(f"Topics of {opened.path}", columns, rows)


def queues(store: StoreOrPath = None, topic: str = "") -> Table:
    """Return the queues of a topic: the first offset, the next to come, and as in `topics`.

    Raises StoreNotFoundError, TopicNotFoundError.
    """
    topic = named(topic)
    with looking_at(store) as opened:
        rows = []
        for queue_id, has in opened.offsets(topic).items():
            first, last = _times(opened, topic, queue_id, has)
            sizes = has.maximum - has.minimum, _bytes(opened, topic, queue_id, has)
            rows.append((queue_id, has.minimum, has.maximum, *sizes, utc(first), utc(last)))
        columns = ("queue", "minimum", "maximum", "messages", "bytes", "first", "last")
        return Table(f"Queues of {topic}", columns, rows)


def _is_system(name: str) -> bool:
    return name.startswith(SYSTEM_PREFIX) or name in CLOSED_TO_SENDERS | MADE_BY_BROKERS


def _topic(store: Store, name: str) -> tuple[object, ...]:
    ranges = store.offsets(name)
    count = sum(has.maximum - has.minimum for has in ranges.values())
    size = sum(_bytes(store, name, queue_id, has) for queue_id, has in ranges.items())
    times = [_times(store, name, queue_id, has) for queue_id, has in ranges.items()]
    first = min((first for first, _ in times if first is not None), default=None)
    last = max((last for _, last in times if last is not None), default=None)
    trend = "" if first is None or last is None else _trend(store, name, ranges, first, last)
    return name, len(ranges), count, size, utc(first), utc(last), trend


def _times(
    store: Store, topic: str, queue_id: int, has: QueueOffsets
) -> tuple[int | None, int | None]:
    if has.minimum == has.maximum:
        return None, None
    first = stored_at_ms(store, topic, queue_id, has.minimum)
    return first, stored_at_ms(store, topic, queue_id, has.maximum - 1)


def _bytes(store: Store, topic: str, queue_id: int, has: QueueOffsets) -> int:
    return store.estimate_bytes(topic, queue_id, has.minimum, has.maximum)


def _trend(store: Store, topic: str, ranges: dict[int, QueueOffsets], first: int, last: int) -> str:
    """Return a bar for each part of the time, as high as its share of the fullest part."""
    edges = [first + (last + 1 - first) * step // _STEPS for step in range(1, _STEPS)]
    ends = [
        sum(store.offset_by_time(topic, queue_id, edge) for queue_id in ranges) for edge in edges
    ]
    begin = sum(has.minimum for has in ranges.values())
    end = sum(has.maximum for has in ranges.values())
    counts = [after - before for before, after in pairwise([begin, *ends, end])]
    most = max(*counts, 1)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] for count in counts)
