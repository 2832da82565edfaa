"""Checks a store's directory before a writer changes it.

A new store must not be created inside another store or in a folder with other files. The fixed
names of a store must not be links, devices or huge files.
"""

import stat
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from pyrocket.disk.io import SMALL_FILE_BYTES, check_file_size
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import linked, naming_obstacles, wrong_kind
from pyrocket.disk.tree import links_of
from pyrocket.errors import StoreNotFoundError

_STORE_NAMES = frozenset(
    ["abort", "checkpoint", "lock", "commitlog", "consumequeue", "index", "config", "pyrocket"]
)
_MAX_NAMES = 1000
"""Maximum number of names in a folder that are checked: it may have millions of files."""

_OWN_DIRECTORY = (
    "A store needs a directory of its own: check the path, or use an empty or new directory for a "
    "new store."
)


def refuse_inside_store(root: Path) -> None:
    """Raise StoreNotFoundError (STORE_PATH) if `root` is inside the directory of a store."""
    for parent in root.parents:
        if Layout(parent).looks_like_a_store:
            raise StoreNotFoundError(
                f"{root} is inside the store {parent}.",
                remedy=f"Use {parent}, or a directory outside of it.",
                code="STORE_PATH",
            )


def refuse_foreign(root: Path) -> None:
    """Raise StoreNotFoundError (STORE_DIRECTORY_NOT_EMPTY) if `root` contains other files."""
    if not root.is_dir():
        return
    names = {entry.name for entry in islice(root.iterdir(), _MAX_NAMES)}
    if names <= _STORE_NAMES:
        return
    what, remedy = _described(root, names)
    raise StoreNotFoundError(
        f"{root} is not a store: it contains {what}.",
        remedy=remedy,
        code="STORE_DIRECTORY_NOT_EMPTY",
    )


def _described(root: Path, names: Collection[str]) -> tuple[str, str]:
    """Return a description of a folder with these names, and the remedy."""
    stores = [name for name in sorted(names) if Layout(root / name).looks_like_a_store]
    if stores:
        return f"the store {stores[0]!r}", f"Use {root / stores[0]}."
    if "_delta_log" in names:
        return "a Delta table", f"Read it with format('delta'). {_OWN_DIRECTORY}"
    if any(name.endswith(".parquet") for name in names):
        return "Parquet files", f"Read them with format('parquet'). {_OWN_DIRECTORY}"
    if {"offsets", "commits"} <= {*names}:
        return "the checkpoint of a stream", f"Use it as 'checkpointLocation'. {_OWN_DIRECTORY}"
    if "_SUCCESS" in names or "_spark_metadata" in names:
        return "files written by Spark", _OWN_DIRECTORY
    if any("=" in name for name in names):
        return "the partitions of a table", _OWN_DIRECTORY
    other = min(name for name in names if name not in _STORE_NAMES)
    return f"other files, such as {other!r}", _OWN_DIRECTORY


@naming_obstacles
def check_fixed_names(layout: Layout) -> None:
    """Raise StoreDamagedError if a link, device or huge file is in place of a store's file.

    The codes are STORE_LINKED, STORE_FILE_KIND and STORE_FILE_SIZE. Files of the log, the queues
    and the key index are checked when they are opened.
    """
    for link in links_of(layout.root, everywhere=False):
        raise linked(link)
    for path in (layout.abort, layout.lock, layout.checkpoint, layout.own_checkpoint):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            check_file_size(path, status.st_size, SMALL_FILE_BYTES)
        elif not stat.S_ISDIR(status.st_mode):
            raise wrong_kind(path)
