"""Stores opened for reading: one per directory and process, kept from task to task.

Spark reuses its Python workers, so a store that stays open makes the next micro-batch cheap. A
directory that was replaced under its path is noticed and opened again.
"""

import os
import socket

from pyrocket import Store
from pyrocket.errors import StoreNotFoundError, StoreNotSharedError

_MAX = 8
"""Open stores per process; a query has one or two."""

_open: dict[str, tuple[int, Store]] = {}
"""Path → a descriptor of the directory, which keeps its inode from being used again, and it."""


def shared_store(path: str) -> Store:
    """Return the store at `path`, opened for reading; costs two stats when it is open already."""
    known = _open.get(path)
    if known is not None:
        if _is_at(path, known[0]):
            return known[1]
        forget(path)
    while len(_open) >= _MAX:
        forget(next(iter(_open)))
    store = Store.open(path, read_only=True)
    _open[path] = (os.open(path, os.O_RDONLY | os.O_DIRECTORY), store)
    return store


def shared_store_or_none(path: str) -> Store | None:
    """Return the same, or None where there is no store."""
    try:
        return shared_store(path)
    except StoreNotFoundError as error:
        if error.code != StoreNotFoundError.default_code:
            raise
        return None


def store_of_driver(path: str, uuid: str) -> Store:
    """Return the store at `path` for a task, or raise StoreNotSharedError if it is another one."""
    try:
        store = shared_store(path)
    except StoreNotFoundError as error:
        raise not_shared(path, f"there is no store: {error.message}") from error
    check_uuid(path, uuid, store.uuid)
    return store


def check_uuid(path: str, expected: str, found: str) -> None:
    """Raise StoreNotSharedError unless a task has found the driver's store.

    A directory that only Java has written has no uuid, and then nothing can be compared.
    """
    if expected and found != expected:
        raise not_shared(path, f"there is the store {found or 'without an id'}, not {expected}")


def not_shared(path: str, found: str) -> StoreNotSharedError:
    """Return the error of a task that does not see the driver's store."""
    return StoreNotSharedError(
        f"A task on {socket.gethostname()} looks at {path} as the driver does, but {found}.",
        remedy="The directory has to be the same one for the driver and all executors.",
    )


def forget(path: str) -> None:
    """Close the store at `path`, if it is open here."""
    known = _open.pop(path, None)
    if known is not None:
        os.close(known[0])
        known[1].close()


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False
