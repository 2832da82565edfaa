"""The sizes of a store's files, where `store.json` does not say them, or says wrong ones.

Whoever opens, checks or repairs a store asks here, so that all see the same files as odd.
"""

from collections import Counter
from typing import NoReturn

from pyrocket.config import StoreConfig, is_log_file_size, is_queue_file_size
from pyrocket.disk.file_sizes import (
    check_lengths,
    lengths_in,
    log_folders,
    other_size,
    queue_folders,
    usual_size,
)
from pyrocket.disk.layout import Layout, file_name
from pyrocket.errors import REBUILD_QUEUES, RESTORE_FILE, StoreDamagedError
from pyrocket.formats.index_file import Geometry, is_table_name
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.log.valid_end import is_cut

TELL_INDEX = (
    "Give the broker's maxHashSlotNum and maxIndexNum: as index_slots and index_items where the"
    " store is opened, or once as --index-slots and --index-items to `pyrocket repair`. Or remove"
    " the folder: the next writer builds the index anew."
)
"""The way out where nothing tells what the files of the key index are like."""


def sizes_of_files(layout: Layout, config: StoreConfig) -> dict[str, int]:
    """Return the sizes that most files have; nothing where there are none.

    Raises StoreDamagedError (STORE_FILE_LENGTH) if files do not tell the size of the log's.
    """
    sizes = {}
    if found := _log_size(layout, config):
        sizes["log_file_bytes"] = found
    queues = queue_folders(layout, in_order=True)
    if found := usual_size(queues, config.queue_file_bytes, is_size=is_queue_file_size):
        sizes["queue_file_entries"] = found // ENTRY_BYTES
    return sizes


def _log_size(layout: Layout, config: StoreConfig) -> int:
    """Return the size of the log's files, 0 if there are none.

    A single file that was cut does not tell it; then it is the configuration's, if that fits.
    """
    lengths, preferred = lengths_in(layout.commit_log), config.log_file_bytes
    size = usual_size(log_folders(layout), preferred, is_size=is_log_file_size)
    if not lengths or (size and not _is_single_and_cut(layout, lengths)):
        return size
    if all(start % preferred == 0 and length < preferred for start, length in lengths.items()):
        return preferred
    start, length = next(iter(lengths.items()))
    raise StoreDamagedError(
        f"{layout.commit_log / file_name(start)} has {length} bytes and was cut, or is of no log"
        " that can be read: the size of its files is a multiple of 4096 below 2 GiB.",
        remedy=RESTORE_FILE,
        code="STORE_FILE_LENGTH",
    )


def _is_single_and_cut(layout: Layout, lengths: dict[int, int]) -> bool:
    if len(lengths) > 1:
        return False
    ((start, length),) = lengths.items()
    return start % length != 0 or is_cut(layout.commit_log / file_name(start), start)


def index_sizes(layout: Layout, config: StoreConfig) -> dict[str, int] | None:
    """Return what index files say about their geometry, which is little: their length.

    Nothing if there are none or the configuration fits one, None if nothing fits.
    """
    files = (path for path in layout.index.glob("*") if is_table_name(path.name))
    lengths = Counter(path.stat().st_size for path in files)
    if not lengths or Geometry(config.index_slots, config.index_items).file_bytes in lengths:
        return {}
    # One may have been cut: the length counts that most have.
    guess = Geometry.guess(max(lengths, key=lambda length: (lengths[length], length)))
    return {"index_slots": guess.slots, "index_items": guess.items} if guess else None


def check_noted_sizes(layout: Layout, config: StoreConfig) -> None:
    """Raise StoreDamagedError (STORE_SIZES) where all files deny a size in `store.json`.

    Where one has it, no more than that one is looked at.
    """
    log, queue = config.log_file_bytes, config.queue_file_bytes
    if other := other_size(log_folders(layout), log, is_size=is_log_file_size):
        _deny(layout, "logFileBytes", log, other, other)
    if other := other_size(queue_folders(layout), queue, is_size=is_queue_file_size):
        entries = other // ENTRY_BYTES
        _deny(layout, "queueFileEntries", config.queue_file_entries, entries, other)


def _deny(layout: Layout, key: str, noted: int, right: int, size: int) -> NoReturn:
    raise StoreDamagedError(
        f"{layout.identity} says {noted} for {key}, but all files have {size} bytes.",
        remedy=f"If the files are as they were, write {right} there, else restore them from a"
        " backup. Nothing has been changed.",
        code="STORE_SIZES",
    )


def check_all_lengths(layout: Layout, config: StoreConfig) -> None:
    """Raise StoreDamagedError (STORE_FILE_LENGTH) if a file has not the size that it should."""
    check_lengths(log_folders(layout), config.log_file_bytes, RESTORE_FILE)
    check_lengths(queue_folders(layout), config.queue_file_bytes, REBUILD_QUEUES)
