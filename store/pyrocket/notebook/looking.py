"""What all views share: the store they look at, and the times of messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from os import PathLike

from pyrocket.errors import OffsetOutOfRangeError
from pyrocket.store import Store

StoreOrPath = Store | str | PathLike[str]


@contextmanager
def looking_at(store: StoreOrPath) -> Iterator[Store]:
    """Yield the open store; one that is named by its path is opened for reading, and closed."""
    if isinstance(store, Store):
        yield store
        return
    with Store.open(store, read_only=True) as opened:
        yield opened


def stored_at_ms(store: Store, topic: str, queue_id: int, offset: int) -> int | None:
    """Return when a message was stored, epoch ms; None where it is gone or was never there."""
    try:
        found = store.read(topic, queue_id, offset, 1)
    except OffsetOutOfRangeError:
        return None
    return found[0].store_timestamp if found else None


def utc(ms: int | None) -> datetime | None:
    """Return epoch milliseconds as a time in UTC."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, timezone.utc)
