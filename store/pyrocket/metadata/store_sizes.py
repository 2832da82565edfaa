"""Derives the sizes of a store's files if `store.json` is missing, and checks them otherwise.

Opening a store, `verify` and `repair` all use these functions, so they agree on which files are
wrong.
"""

from collections import Counter
from typing import NoReturn

from pyrocket.base.config import StoreConfig, is_log_file_size, is_queue_file_size
from pyrocket.disk.file_checks import (
    check_lengths,
    lengths_in,
    other_size,
    queue_folders,
    usual_size,
)
from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.disk.layout import Layout
from pyrocket.errors import REBUILD_QUEUES, RESTORE_FILE, StoreDamagedError
from pyrocket.formats.index_file import Geometry, is_table_name
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.log.valid_end import is_cut

GIVE_INDEX_SIZES = (
    "Give the broker's maxHashSlotNum and maxIndexNum: as index_slots and index_items where the"
    " store is opened, or once as --index-slots and --index-items to `pyrocket repair`. Or remove"
    " the folder: the next writer rebuilds the index."
)
"""The remedy if the number of slots and items of the key index's files is unknown."""


def sizes_of_files(layout: Layout, config: StoreConfig) -> dict[str, int]:
    """Return the sizes that most files have; empty if there are no files.

    Raises StoreDamagedError (STORE_FILE_LENGTH) if the size of log files cannot be derived.
    """
    sizes = {}
    if size := _log_size(layout, config):
        sizes["log_file_bytes"] = size
    queues = queue_folders(layout, in_order=True)
    if size := usual_size(queues, config.queue_file_bytes, is_size=is_queue_file_size):
        sizes["queue_file_entries"] = size // ENTRY_BYTES
    return sizes


def _log_size(layout: Layout, config: StoreConfig) -> int:
    """Return the size of the log's files; 0 if there are none.

    A single truncated file does not show the size; then the configured size is used if it fits.
    """
    lengths, preferred = lengths_in(layout.commit_log), config.log_file_bytes
    size = usual_size([layout.commit_log], preferred, is_size=is_log_file_size)
    if not lengths or (size and not _is_single_and_cut(layout, lengths)):
        return size
    if all(start % preferred == 0 and length < preferred for start, length in lengths.items()):
        return preferred
    start, length = next(iter(lengths.items()))
    raise StoreDamagedError(
        f"{layout.commit_log / file_name(start)} has {length} bytes: it was truncated, or it is not"
        " a log file: the size of log files is a multiple of 4096 below 2 GiB.",
        remedy=RESTORE_FILE,
        code="STORE_FILE_LENGTH",
    )


def _is_single_and_cut(layout: Layout, lengths: dict[int, int]) -> bool:
    if len(lengths) > 1:
        return False
    ((start, length),) = lengths.items()
    return start % length != 0 or is_cut(layout.commit_log / file_name(start), start)


def index_sizes(layout: Layout, config: StoreConfig) -> dict[str, int] | None:
    """Return the slots and items of index files, derived from the files' length.

    Empty if there are no files or the configuration fits one of the files. None if no geometry
    fits.
    """
    files = (path for path in layout.index.glob("*") if is_table_name(path.name))
    lengths = Counter(path.stat().st_size for path in files)
    if not lengths or Geometry(config.index_slots, config.index_items).file_bytes in lengths:
        return {}
    # A file may have been truncated, so the length of most files is used.
    guess = Geometry.guess(max(lengths, key=lambda length: (lengths[length], length)))
    return {"index_slots": guess.slots, "index_items": guess.items} if guess else None


def check_saved_sizes(layout: Layout, config: StoreConfig) -> None:
    """Raise StoreDamagedError (STORE_SIZES) if all files contradict a size in `store.json`."""
    log, queue = config.log_file_bytes, config.queue_file_bytes
    if other := other_size([layout.commit_log], log, is_size=is_log_file_size):
        _raise_wrong_size(layout, "logFileBytes", log, other, other)
    if other := other_size(queue_folders(layout), queue, is_size=is_queue_file_size):
        entries = other // ENTRY_BYTES
        _raise_wrong_size(layout, "queueFileEntries", config.queue_file_entries, entries, other)


def _raise_wrong_size(layout: Layout, key: str, saved: int, right: int, size: int) -> NoReturn:
    raise StoreDamagedError(
        f"{layout.identity} has {saved} for {key}, but all files have {size} bytes.",
        remedy=f"If the files are unchanged, write {right} there; otherwise restore them from a"
        " backup. Nothing has been changed.",
        code="STORE_SIZES",
    )


def check_all_lengths(layout: Layout, config: StoreConfig) -> None:
    """Raise StoreDamagedError (STORE_FILE_LENGTH) if a file has a wrong size."""
    for folders, size, remedy in (
        ([layout.commit_log], config.log_file_bytes, RESTORE_FILE),
        (queue_folders(layout), config.queue_file_bytes, REBUILD_QUEUES),
    ):
        for folder in folders:
            # Recovery deletes empty files at the end.
            run = FileQueue(folder, size, layout.scratch, writable=False, ignore_empty_tail=True)
            check_lengths(run, remedy)
