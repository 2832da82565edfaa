"""A look at the newest messages of a topic."""

from pyrocket.errors import InvalidInputError
from pyrocket.formats.properties import RESERVED_PROPERTIES
from pyrocket.message import StoredMessage
from pyrocket.store import Store
from pyrocket.tools.notebook.looking import StoreOrPath, looking_at, named, utc
from pyrocket.tools.notebook.table import Table

_MAX = 1000


def peek(
    store: StoreOrPath = None, topic: str = "", n: int = 10, *, queue: int | None = None
) -> Table:
    """Return the newest `n` messages of a topic or of one queue, the newest last; at most 1,000.

    Raises StoreNotFoundError, TopicNotFoundError, QueueNotFoundError, InvalidInputError.
    """
    if not 1 <= n <= _MAX:
        raise InvalidInputError(
            f"n is {n}.", remedy=f"Look at 1 to {_MAX} messages; `Store.messages` reads all."
        )
    topic = named(topic)
    with looking_at(store) as opened:
        found = [
            message
            for queue_id in (opened.offsets(topic) if queue is None else [queue])
            for message in _newest(opened, topic, queue_id, n)
        ]
        found.sort(key=lambda one: (one.store_timestamp, one.physical_offset))
        columns = ("queue", "offset", "stored", "tags", "keys", "properties", "body")
        return Table(f"Newest messages of {topic}", columns, [_row(one) for one in found[-n:]])


def _newest(store: Store, topic: str, queue_id: int, n: int) -> list[StoredMessage]:
    first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    start = max(first, end - n)
    return store.read(topic, queue_id, start, end - start) if end > start else []


def _row(one: StoredMessage) -> tuple[object, ...]:
    place = one.queue_id, one.queue_offset, utc(one.store_timestamp)
    users = (name for name in one.properties if name not in RESERVED_PROPERTIES)
    properties = {name: one.properties[name] for name in users}
    return *place, one.tags, " ".join(one.keys), properties, one.body
