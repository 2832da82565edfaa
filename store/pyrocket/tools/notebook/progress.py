"""Consumer groups: how far they have come, and what is left, in messages, bytes and time."""

from collections.abc import Iterator
from datetime import timedelta

from pyrocket.clock import Clock, system_clock
from pyrocket.message import QueueOffsets
from pyrocket.store import Store
from pyrocket.tools.notebook.looking import StoreOrPath, looking_at, stored_at_ms
from pyrocket.tools.notebook.table import Table

Row = tuple[str, str, int, int | None, int, int, int, timedelta]


def groups(store: StoreOrPath = None, *, clock: Clock = system_clock) -> Table:
    """Return the consumer groups, a row for each topic in which one has committed offsets.

    lag, bytes, behind: as in `lag`, of all queues together.
    """
    with looking_at(store) as opened:
        rows: list[tuple[object, ...]] = []
        for group in opened.groups.all():
            sums = list(_sums(opened, group, clock()))
            rows += sums or [(group, None, None, None, None)]
        return Table(f"Groups of {opened.path}", ("group", "topic", "lag", "bytes", "behind"), rows)


def lag(
    store: StoreOrPath = None, group: str | None = None, *, clock: Clock = system_clock
) -> Table:
    """Return what a group, or each, has left in the queues of its topics.

    committed: the next offset to consume; None where nothing was committed, and all counts. bytes:
    about what that takes in the log. behind: how long ago the oldest of it was stored. Raises
    GroupNotFoundError.
    """
    with looking_at(store) as opened:
        names = [opened.groups.get(group).name] if group is not None else opened.groups.all()
        rows = [row for name in names for row in _rows(opened, name, clock())]
        columns = ("group", "topic", "queue", "committed", "maximum", "lag", "bytes", "behind")
        title = "Lag of all groups" if group is None else f"Lag of {group}"
        return Table(title, columns, rows)


def _rows(store: Store, group: str, now: int) -> Iterator[Row]:
    known = store.topics()
    for topic in store.groups.topics(group):
        if topic not in known:  # Deleted by a broker, which leaves the offsets.
            continue
        committed = store.groups.committed(group, topic)
        for queue_id, has in store.offsets(topic).items():
            yield _row(store, group, topic, queue_id, committed.get(queue_id), has, now)


def _row(
    store: Store,
    group: str,
    topic: str,
    queue_id: int,
    committed: int | None,
    has: QueueOffsets,
    now: int,
) -> Row:
    start = min(max(committed or 0, has.minimum), has.maximum)
    left = has.maximum - start
    size = store.estimate_bytes(topic, queue_id, start, has.maximum) if left else 0
    oldest = stored_at_ms(store, topic, queue_id, start) if left else None
    behind = timedelta(milliseconds=max(now - oldest, 0) if oldest is not None else 0)
    return group, topic, queue_id, committed, has.maximum, left, size, behind


def _sums(store: Store, group: str, now: int) -> Iterator[tuple[object, ...]]:
    rows = list(_rows(store, group, now))
    for topic in sorted({row[1] for row in rows}):
        of_topic = [row for row in rows if row[1] == topic]
        left, size = sum(row[5] for row in of_topic), sum(row[6] for row in of_topic)
        yield group, topic, left, size, max(row[7] for row in of_topic)
