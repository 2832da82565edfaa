"""What lies at a path that is no store, so that an error can name it."""

from collections.abc import Collection
from itertools import islice
from pathlib import Path

from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreNotFoundError

_STORE_NAMES = frozenset(
    ["abort", "checkpoint", "lock", "commitlog", "consumequeue", "index", "config", "pyrocket"]
)
_MAX_NAMES = 1000
"""Names that are looked at: a folder of files may have millions."""

_OWN_DIRECTORY = (
    "A store has a directory of its own: check the path, or name an empty or new directory for a "
    "new store."
)


def refuse_inside_store(root: Path) -> None:
    """Raise StoreNotFoundError (STORE_PATH) if `root` lies in the directory of a store."""
    for parent in root.parents:
        if Layout(parent).looks_like_a_store:
            raise StoreNotFoundError(
                f"{root} lies inside the store {parent}.",
                remedy=f"Name {parent}, or a directory outside of it.",
                code="STORE_PATH",
            )


def refuse_foreign(root: Path) -> None:
    """Raise StoreNotFoundError (STORE_DIRECTORY_NOT_EMPTY) if `root` holds other files."""
    if not root.is_dir():
        return
    names = {entry.name for entry in islice(root.iterdir(), _MAX_NAMES)}
    if names <= _STORE_NAMES:
        return
    what, remedy = _described(root, names)
    raise StoreNotFoundError(
        f"{root} is not a store: it holds {what}.", remedy=remedy, code="STORE_DIRECTORY_NOT_EMPTY"
    )


def _described(root: Path, names: Collection[str]) -> tuple[str, str]:
    """Return what a folder with these names holds, and the way out."""
    stores = [name for name in sorted(names) if Layout(root / name).looks_like_a_store]
    if stores:
        return f"the store {stores[0]!r}", f"Name {root / stores[0]}."
    if "_delta_log" in names:
        return "a Delta table", f"Read it with format('delta'). {_OWN_DIRECTORY}"
    if any(name.endswith(".parquet") for name in names):
        return "Parquet files", f"Read them with format('parquet'). {_OWN_DIRECTORY}"
    if {"offsets", "commits"} <= {*names}:
        return "the checkpoint of a stream", f"It belongs in 'checkpointLocation'. {_OWN_DIRECTORY}"
    if "_SUCCESS" in names or "_spark_metadata" in names:
        return "files written by Spark", _OWN_DIRECTORY
    if any("=" in name for name in names):
        return "the partitions of a table", _OWN_DIRECTORY
    other = min(name for name in names if name not in _STORE_NAMES)
    return f"other files, such as {other!r}", _OWN_DIRECTORY
