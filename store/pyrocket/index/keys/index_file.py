"""One index file: appends batches of items, reads slots and items.

A batch is written in this order: the items, after the last valid one; the slots that point to them;
the header, which makes the items valid and moves endPhyOffset. A writer that is killed in between
leaves invalid items, and perhaps slots that point to them. The header still has the old end of the
file, so the next batch begins at the same record (`KeyIndex.append`) and writes the same items to
the same places. A slot may already point to an item of the killed writer. Items are written before
slots, so that item is complete, and the previous value of the slot is read from it. Repeating a
batch changes no byte, however the log is divided into batches. None of this holds after a power
loss: then only full files that were durable are valid (`KeyIndex.count_durable`).

Readers also follow slots to items that are not valid yet, so they miss nothing while a batch is
being written. Items are hints only: readers compare them with the record.

One flipped bit in a header can hide all keys of a file. So whenever the header has changed, it is
compared with the first and the last item (`inspect`); times are compared to the second, the
precision of items. `IndexCoverage` compares both with the log.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyrocket.disk import io
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.index_file import (
    HEADER_BYTES,
    ITEM,
    ITEM_BYTES,
    ITEM_FIELDS,
    SLOT,
    SLOT_BYTES,
    Geometry,
    IndexHeader,
    build_items,
    seconds_after,
)
from pyrocket.index.keys.key_items import KeyItems

REBUILD_KEYS = (
    "If a broker made it, set index_slots and index_items to its maxHashSlotNum and maxIndexNum."
    " Otherwise close the store everywhere and run `pyrocket repair` on its directory: it rebuilds"
    " the index from the log."
)
"""The remedy if the log is intact and the key index is not."""

SLACK_MS = 1000
"""The times of items are exact to the second, so results are compared with their records. The times
of a header are also only exact to the second if its first record is no longer in the log."""

Fields = tuple[int, int, int, int]
"""Hash, log offset, seconds and previous item of an item."""

_PAGE_BYTES = 4096


class IndexFile:
    """An open index file. Raises StoreDamagedError (KEY_INDEX_DAMAGED), FileNotFoundError."""

    def __init__(self, path: Path, geometry: Geometry, *, writable: bool = False) -> None:
        self.path, self.geometry = path, geometry
        self._item_0 = geometry.item_position(0)
        self._descriptor = io.open_file(path, os.O_RDWR if writable else os.O_RDONLY)
        status = os.fstat(self._descriptor)
        length, self.inode = status.st_size, status.st_ino
        if length != geometry.file_bytes:
            self.close()
            raise damaged(path, f"it has {length} bytes, not {geometry.file_bytes}")

    def __enter__(self) -> "IndexFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def header(self) -> IndexHeader:
        """Read the header. Raises StoreDamagedError if it is invalid."""
        header = IndexHeader.decode(os.pread(self._descriptor, HEADER_BYTES, 0))
        if not 1 <= header.count <= self.geometry.items or header.end_offset < 0:
            raise damaged(self.path, f"its header is {header}")
        return header

    def items(self, first: int, last: int) -> npt.NDArray[np.void]:
        position = self.geometry.item_position(first)
        return np.frombuffer(
            os.pread(self._descriptor, (last - first) * ITEM_BYTES, position), ITEM
        )

    def slots(self) -> npt.NDArray[np.void]:
        length = SLOT_BYTES * self.geometry.slots
        return np.frombuffer(os.pread(self._descriptor, length, HEADER_BYTES), SLOT)

    def item(self, number: int) -> Fields:
        data = os.pread(self._descriptor, ITEM_BYTES, self._item_0 + ITEM_BYTES * number)
        key_hash, offset, seconds, previous = ITEM_FIELDS.unpack(data)
        return key_hash, offset, seconds, previous

    def slot(self, slot: int) -> int:
        """Return one slot: the number of its newest item, 0 for an empty slot."""
        data = os.pread(self._descriptor, SLOT_BYTES, self.geometry.slot_position(slot))
        return int.from_bytes(data, "big", signed=True)

    # Writing

    def put(self, items: KeyItems) -> int:
        """Write the first items, as many as fit; return their number."""
        header = self.header()
        items = items[: self.geometry.items - header.count]
        if not len(items):
            return 0
        # Items of one slot are adjacent, oldest first: each points to the item before it, and the
        # first to the previous value of the slot.
        slots, order = _by_slot(items.hashes, self.geometry.slots)
        firsts = np.flatnonzero(np.diff(slots, prepend=-1))
        touched, numbers = slots[firsts], header.count + order
        pages = _SlotPages(self._descriptor, self.geometry, touched)
        held = self._before(pages.values, header.count, touched, numbers[firsts])
        before = np.empty(len(items), np.int64)
        before[1:] = numbers[:-1]
        before[firsts] = held
        previous = np.empty(len(items), np.int64)
        previous[order] = before
        seconds = seconds_after(header.begin_timestamp, items.times)
        if header.count == 1:
            # The first item's time is relative to the previous file, the others to the first item.
            seconds[1:] = seconds_after(int(items.times[0]), items.times[1:])
        built = build_items(items.hashes, items.offsets, seconds, previous)
        io.write_at(self._descriptor, built.tobytes(), self.geometry.item_position(header.count))
        pages.write(numbers[np.append(firsts[1:], len(order)) - 1])
        header = _grown(header, items, int((held == 0).sum()))
        io.write_at(self._descriptor, header.encode(), 0)
        return len(items)

    def _before(self, heads: Ints, count: int, slots: Ints, numbers: Ints) -> Ints:
        """Return the previous values of the slots: numbers of items below `count`, or 0.

        `numbers` are the first items about to be added to the slots. A slot that points to an
        invalid item was written by a process that died. Its previous value is in the first item
        that this process wrote for the slot, which has the same number.
        """
        held = np.where((heads > 0) & (heads < self.geometry.items), heads, 0)
        ahead = np.flatnonzero(held >= count)
        if len(ahead):
            numbers = numbers[ahead]
            left = self.items(count, int(numbers.max()) + 1)[numbers - count]
            same = (numbers <= held[ahead]) & (
                left["key_hash"] % self.geometry.slots == slots[ahead]
            )
            older = (left["previous"] > 0) & (left["previous"] < count)
            held[ahead] = np.where(same & older, left["previous"], 0)
        return held

    def sync(self) -> None:
        """Flush the file. Raises SyncError."""
        io.sync_or_fail(self._descriptor)

    def trailing(self, offset: int) -> int:
        """Return the number of trailing items that belong to the record at `offset`."""
        count = self.header().count
        trailing, step = 0, 8
        while trailing < count - 1:
            first = max(1, count - step)
            others = np.flatnonzero(self.items(first, count)["physical_offset"] != offset)
            trailing = count - first - (int(others[-1]) + 1 if len(others) else 0)
            if len(others):
                break
            step *= 8
        return trailing


def _by_slot(hashes: Ints, slots: int) -> tuple[Ints, Ints]:
    """Return the items' slots in ascending order, and the permutation that sorts the items.

    Items of one slot stay in order. Sorts 16 bits at a time: numpy has a radix sort for these.
    """
    of_items = (hashes % slots).astype(np.uint32)
    order = np.argsort(of_items.astype(np.uint16), kind="stable")
    order = order[np.argsort((of_items >> 16).astype(np.uint16)[order], kind="stable")]
    return of_items[order].astype(np.int64), order


class _SlotPages:
    """The pages of a file that contain some slots. Pages are read, changed and written in runs."""

    def __init__(self, descriptor: int, geometry: Geometry, slots: Ints) -> None:
        """Read the pages of `slots`, which are ascending and distinct, but no items."""
        self._descriptor = descriptor
        positions = HEADER_BYTES + SLOT_BYTES * slots.astype(np.int64)
        pages = positions // _PAGE_BYTES
        cuts = np.flatnonzero(np.diff(pages) > 1) + 1
        self._firsts = pages[np.concatenate(([0], cuts))] * _PAGE_BYTES
        lasts = (pages[np.append(cuts, len(pages)) - 1] + 1) * _PAGE_BYTES
        lasts = np.minimum(lasts, geometry.slot_position(geometry.slots))
        self._lengths = (lasts - self._firsts).tolist()
        ends = np.cumsum(self._lengths)
        self._data = np.empty(int(ends[-1]), np.uint8)
        view, at = self._data.data, 0
        for first, length in zip(self._firsts.tolist(), self._lengths, strict=True):
            _read_into(descriptor, view[at : at + length], first)
            at += length
        # Pages and slots begin at multiples of a slot's size.
        run = np.repeat(np.arange(len(cuts) + 1), np.diff(cuts, prepend=0, append=len(slots)))
        shift = ends - self._lengths - self._firsts
        self._at = (positions + shift[run]) // SLOT_BYTES
        self._all = self._data.view(SLOT)

    @property
    def values(self) -> Ints:
        return self._all[self._at].astype(np.int64)

    def write(self, values: Ints) -> None:
        self._all[self._at] = values
        view, at = self._data.data, 0
        for first, length in zip(self._firsts.tolist(), self._lengths, strict=True):
            # The header, on the first page, is written last and separately.
            skip = HEADER_BYTES if first == 0 else 0
            io.write_at(self._descriptor, view[at + skip : at + length], first + skip)
            at += length


def _read_into(descriptor: int, view: memoryview, position: int) -> None:
    while view:
        count = os.preadv(descriptor, [view], position)
        if not count:
            raise OSError(errno.EIO, "an index file is shorter than it was")
        view, position = view[count:], position + count


def _grown(header: IndexHeader, items: KeyItems, new_slots: int) -> IndexHeader:
    """Return the header after these items were appended."""
    first = header.count == 1
    return IndexHeader(
        begin_timestamp=int(items.times[0]) if first else header.begin_timestamp,
        end_timestamp=int(items.times[-1]),
        begin_offset=int(items.offsets[0]) if first else header.begin_offset,
        end_offset=int(items.offsets[-1]),
        slot_count=header.slot_count + new_slots,
        count=header.count + len(items),
    )


def damaged(path: Path, what: str) -> StoreDamagedError:
    """Return the error for a file that cannot be used."""
    return StoreDamagedError(
        f"the index file {path} cannot be used: {what}.",
        remedy=REBUILD_KEYS,
        code="KEY_INDEX_DAMAGED",
    )


_LOOKS = 3


@dataclass(frozen=True)
class IndexFileInfo:
    """The state of a file when it was inspected; `inode` distinguishes files of the same name.

    header_error: how the header contradicts the items; "" if it does not. times_agree: whether the
    header's times match those of the items.
    """

    name: str
    inode: int
    header: IndexHeader
    header_error: str = ""
    times_agree: bool = True


def inspect(name: str, file: IndexFile, known: IndexFileInfo | None = None) -> IndexFileInfo:
    """Inspect an open file; return `known` if its header has not changed.

    A header may be read while it is being written, so an invalid header is read again. Raises
    StoreDamagedError.
    """
    looks = 0
    while True:
        header, looks = file.header(), looks + 1
        if known is not None and known.inode == file.inode and known.header == header:
            return known
        first, last = _NO_ITEM, _NO_ITEM
        if header.count > 1:
            first, last = file.items(1, 2)[0], file.items(header.count - 1, header.count)[0]
        error, fit = _header_error(header, first, last), _times_fit(header, int(last["seconds"]))
        if looks == _LOOKS or (fit and not error):
            return IndexFileInfo(name, file.inode, header, error, fit)


_NO_ITEM = np.zeros(1, ITEM)[0]


def _header_error(header: IndexHeader, first: np.void, last: np.void) -> str:
    if header.count == 1:
        moved = header.begin_offset != header.end_offset
        moved |= header.begin_timestamp != header.end_timestamp
        return "its header has no items, but its end differs from its begin." if moved else ""
    begin, end = int(first["physical_offset"]), int(last["physical_offset"])
    if header.begin_offset != begin:
        return f"its header begins at {header.begin_offset}, but its first item begins at {begin}."
    if header.end_offset != end:
        return f"its header ends at {header.end_offset}, but its last item begins at {end}."
    return ""


def _times_fit(header: IndexHeader, seconds: int) -> bool:
    """Whether the header's times match the last item; 0 s for a begin time of 0, as in RocketMQ."""
    begin, end = header.begin_timestamp, header.end_timestamp
    if header.count == 1:
        return True
    expected = int(seconds_after(begin, np.array([end]))[0])
    return 0 <= begin <= end and seconds == expected
