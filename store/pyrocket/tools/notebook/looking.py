"""What all views share: the store they look at, and the times of messages."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from os import PathLike

from pyrocket.arguments import local_path
from pyrocket.errors import OffsetOutOfRangeError, StoreNotFoundError, TopicNotFoundError
from pyrocket.store import Store

StoreOrPath = Store | str | PathLike[str] | None
"""None is the store of the environment variable PYROCKET_STORE."""


@contextmanager
def looking_at(store: StoreOrPath) -> Iterator[Store]:
    """Yield the open store; one that is named by its path is opened for reading, and closed.

    Raises StoreNotFoundError (STORE_PATH) if neither the caller nor PYROCKET_STORE names one.
    """
    if isinstance(store, Store):
        yield store
        return
    store = store or local_path(os.environ.get("PYROCKET_STORE", ""))
    if not store:
        raise StoreNotFoundError(
            "no store is named.",
            remedy="Give its directory, or set the environment variable PYROCKET_STORE.",
            code="STORE_PATH",
        )
    with Store.open(store, read_only=True) as opened:
        yield opened


def named(topic: str) -> str:
    """Return the topic. Raises TopicNotFoundError (TOPIC_MISSING) if it is not named."""
    if not topic:
        raise TopicNotFoundError(
            "no topic is named.", remedy="Give its name: topic='orders'.", code="TOPIC_MISSING"
        )
    return topic


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
