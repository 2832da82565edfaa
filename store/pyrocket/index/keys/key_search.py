"""Searches for keys in one index file, or in the unindexed end of the log.

In an index file, the search follows the chains of the keys' slots. If the chains are long, as for a
key of most messages, it reads all items instead, at a cost that does not depend on the chains.

Most keys of the unindexed end of the log are pending (`PendingKeys`); the rest is read from the
log. Hashes and offsets are cached, so that the next query continues at the end of the last one.
"""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.index_file import Geometry
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.keys.index_file import SLACK_MS, Fields, IndexFile
from pyrocket.index.keys.key_items import KeyItems, PendingKeys, key_items
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import end_of, record_missing, walk

_SLOT_READS = 3
_LOW_BITS = 0xFFFFF
_FAR_MS = 1 << 62
"""Larger than any difference between the times of an item and its file, and fits an int64."""


def among(hashes: Ints, wanted: Ints) -> npt.NDArray[np.int64]:
    """Return the positions, ascending, of the hashes that are in the short array `wanted`."""
    if len(wanted) == 1:
        return np.flatnonzero(hashes == wanted[0])
    may_be = np.zeros(_LOW_BITS + 1, bool)
    may_be[wanted & _LOW_BITS] = True
    rows = np.flatnonzero(may_be[hashes & _LOW_BITS])
    return rows[np.isin(hashes[rows], wanted)]


class KeySearch:
    """Searches an open file for keys with the hashes `wanted`.

    Finds only items stored in [begin_ms, end_ms]; times are exact to two seconds: see `SLACK_MS`.
    After `max_followed` items the search reads the entire file in blocks of `block_items`.
    """

    max_followed, block_items = 1 << 16, 1 << 20

    def __init__(
        self, file: IndexFile, geometry: Geometry, wanted: Ints, begin_ms: int, end_ms: int
    ) -> None:
        self._file, self._geometry, self._wanted = file, geometry, wanted
        self._hashes = frozenset(wanted.tolist())
        # Relative to the file's begin time, clamped in case the header is corrupt.
        first_ms = file.header().begin_timestamp
        after, until = begin_ms - SLACK_MS - 1000 - first_ms, end_ms + SLACK_MS - first_ms
        self._after, self._until = (min(max(ms, -_FAR_MS), _FAR_MS) for ms in (after, until))

    def parts(self, count: int) -> Iterator[Ints]:
        """Yield log offsets of messages that may have one of the keys, possibly repeated.

        Offsets of a single hash are yielded newest first. The parts double in length, so that a
        caller that stops early has read few unnecessary items. `count` is the number of the next
        item when the file was inspected; later items may be left out.
        """
        offsets, length = list[int](), 1
        for read, (key_hash, offset, stored_ms) in enumerate(self._followed()):
            if read == self.max_followed:
                yield np.array(offsets, np.int64)
                yield from self._all_items(count)
                return
            if key_hash in self._hashes and stored_ms <= self._until:
                offsets.append(offset)
                if len(offsets) == length:
                    yield np.array(offsets, np.int64)
                    offsets, length = [], 2 * length
        yield np.array(offsets, np.int64)

    def _followed(self) -> Iterator[tuple[int, int, int]]:
        """Yield hash, log offset and time (ms after the file's begin) of the chains' items."""
        of_slots = {wanted % self._geometry.slots for wanted in self._hashes}
        for slot in sorted(of_slots):
            number, item = self._head(slot)
            while item is not None:
                key_hash, offset, seconds, previous = item
                # The first item's time is relative to the previous file.
                stored_ms = 1000 * seconds if number > 1 else 0
                if stored_ms <= self._after:
                    break
                yield key_hash, offset, stored_ms
                # Chains lead to older items only, so a corrupt chain ends instead of looping.
                number = previous if previous < number else 0
                item = self._item(number, slot)

    def _head(self, slot: int) -> tuple[int, Fields | None]:
        """Return the number of a slot's newest item, and the item.

        An invalid slot is read again, because it may have been read while it was being written.
        """
        number, item = 0, None
        for _ in range(_SLOT_READS):
            number = self._file.slot(slot)
            item = self._item(number, slot)
            if item is not None or not number:
                break
        return number, item

    def _item(self, number: int, slot: int) -> Fields | None:
        """Return the item; None if it does not belong to the slot."""
        if not 0 < number < self._geometry.items:
            return None
        item = self._file.item(number)
        valid = item[1] >= 0 and item[0] % self._geometry.slots == slot
        return item if valid else None

    def _all_items(self, count: int) -> Iterator[Ints]:
        """Yield the same log offsets as `parts`, newest first, by reading all items."""
        for last in range(count, 1, -self.block_items):
            first = max(1, last - self.block_items)
            items = self._file.items(first, last)
            rows = among(items["key_hash"].astype(np.int32), self._wanted)[::-1]
            items = items[rows]
            stored_ms = 1000 * np.where(first + rows > 1, items["seconds"].astype(np.int64), 0)
            valid = (stored_ms > self._after) & (stored_ms <= self._until)
            valid &= items["physical_offset"] >= 0
            yield items["physical_offset"][valid].astype(np.int64)


_KEPT_ITEMS = 4 * 1024 * 1024
"""About 50 MB. A store without an index may have more; the excess is searched in the log."""


@dataclass(frozen=True)
class _Known:
    """The items of [start, end), valid while the store's `mark` stays the same."""

    mark: int | None
    start: int
    end: int
    hashes: Ints
    offsets: Ints

    def since(self, start: int) -> "_Known":
        """Return the items from `start` on."""
        first = int(self.offsets.searchsorted(start))
        return _Known(self.mark, start, self.end, self.hashes[first:], self.offsets[first:])

    def until(self, end: int, items: KeyItems) -> "_Known":
        """Return these items followed by `items`, which end at `end`."""
        hashes = np.concatenate((self.hashes, items.hashes))
        offsets = np.concatenate((self.offsets, items.offsets))
        return _Known(self.mark, self.start, end, hashes, offsets)


class UnindexedTail:
    """Searches the unindexed end of one log.

    Safe to share between threads: the cache is replaced atomically. `pending` has the pending
    keys. At most `kept_items` items are cached.
    """

    def __init__(
        self, log: CommitLog, pending: Path | None = None, kept_items: int = _KEPT_ITEMS
    ) -> None:
        self._log, self._pending, self._kept_items = log, pending, kept_items
        self._known = _nothing(None, 0)

    def search(self, wanted: Ints, start: int, end: int, mark: int | None) -> Ints:
        """Return, in log order, log offsets of messages in [start, end) that may have a key.

        `wanted` are the hashes of the keys. If `end` is unknown (WHOLE_LOG), the search ends before
        the first damaged record. Cached items are used only if `mark` is not None and the same as
        in the last search: otherwise the log may have changed. Raises StoreDamagedError.
        """
        known = self._known
        if mark is not None and known.mark == mark and known.start <= start <= known.end <= end:
            known = known.since(start)
        else:
            known = _nothing(mark, start)
        reached, later = known.end, list[Ints]()
        for items, until in self._parts(known.end, end):
            if known.end == reached and len(known.hashes) + len(items) <= self._kept_items:
                known = known.until(until, items)
            else:
                later.append(items.offsets[among(items.hashes, wanted)])
            reached = until
        if end not in (reached, WHOLE_LOG):
            first = self._log.first_offset()
            if first <= start:
                raise record_missing(reached, end)
            return self.search(wanted, first, end, None)  # The file with `start` was deleted.
        self._known = known
        return np.concatenate((known.offsets[among(known.hashes, wanted)], *later))

    def _parts(self, start: int, end: int) -> Iterator[tuple[KeyItems, int]]:
        """Yield the items of [start, end) of the log in parts, with the end of each part."""
        reached, pending = start, self._pending_items(start, end)
        if pending is not None:
            first, last, items = pending
            for part, until in self._logged(start, first):
                yield part, until
                reached = until
            if reached != first:
                return
            yield items, last
            reached = last
        yield from self._logged(reached, end)

    def _logged(self, start: int, end: int) -> Iterator[tuple[KeyItems, int]]:
        """Yield the same from the log; if `end` is unknown, up to the first damaged record."""
        for run in walk(self._log, start, end):
            whole = _whole(run) if end == WHOLE_LOG else run
            if len(whole):
                yield key_items(whole), end_of(whole)
            if len(whole) < len(run):
                return

    def _pending_items(self, start: int, end: int) -> tuple[int, int, KeyItems] | None:
        """Return (first, last, items) for the part of [start, end) whose keys are pending."""
        if self._pending is None or end == WHOLE_LOG:
            return None
        # Opened each time, because recovery deletes the file.
        with suppress(OSError), closing(PendingKeys(self._pending)) as keys:
            header = keys.header()
            first, last = max(header.start, start), min(header.end, end)
            items = keys.items(header) if first < last else None
            if items is not None:
                bounds = items.offsets.searchsorted([first, last])
                return first, last, items[slice(*bounds.tolist())]
        return None


_NO_OFFSETS = np.zeros(0, np.int64)


def _nothing(mark: int | None, start: int) -> _Known:
    return _Known(mark, start, start, np.zeros(0, np.int32), _NO_OFFSETS)


def _whole(run: RecordFields) -> RecordFields:
    """Return the records of the run before the first damaged one."""
    rows = range(len(run))
    return run.head(bisect_left(rows, True, key=lambda row: not run.head(row + 1).has_structure()))
