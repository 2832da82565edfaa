"""Items with some keys' hashes in one index file: the chains of their slots are followed.

Where chains are long, as that of a key which most messages have, all items are read instead: that
costs the same however they are linked.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.index_file import Geometry
from pyrocket.index.keys.index_file import SLACK_MS, Fields, IndexFile

MAX_FOLLOWED = 1 << 16
"""Items of a file that are read one by one before the file is read as a whole."""

_BLOCK_ITEMS = 1 << 20
_SLOT_READS = 3
_LOW_BITS = 0xFFFFF
_FAR_MS = 1 << 62
"""More than any item's time differs from its file's, and less than an int64 holds."""


def among(hashes: Ints, wanted: Ints) -> npt.NDArray[np.int64]:
    """Return which of many hashes are among a few, ascending."""
    if len(wanted) == 1:
        return np.flatnonzero(hashes == wanted[0])
    may_be = np.zeros(_LOW_BITS + 1, bool)
    may_be[wanted & _LOW_BITS] = True
    rows = np.flatnonzero(may_be[hashes & _LOW_BITS])
    return rows[np.isin(hashes[rows], wanted)]


class KeySearch:
    """Searches an open file of this geometry for keys with the hashes `wanted`.

    Only items stored in [begin_ms, end_ms] count; times are known to two seconds: see `SLACK_MS`.
    """

    def __init__(
        self, file: IndexFile, geometry: Geometry, wanted: Ints, begin_ms: int, end_ms: int
    ) -> None:
        self._file, self._geometry, self._wanted = file, geometry, wanted
        self._hashes = frozenset(wanted.tolist())
        # Times relative to the file's first, exact whatever a corrupt header says.
        first_ms = file.header().begin_timestamp
        after, until = begin_ms - SLACK_MS - 1000 - first_ms, end_ms + SLACK_MS - first_ms
        self._after, self._until = (min(max(ms, -_FAR_MS), _FAR_MS) for ms in (after, until))

    def parts(self, count: int) -> Iterator[Ints]:
        """Yield log offsets of messages that may have one of the keys, perhaps repeated.

        Those of a single hash come newest first; the parts grow, so that a consumer which stops
        early has not read much more than it needed. `count` is the number of the next item at an
        earlier look: later ones may be missing.
        """
        found, length = list[int](), 1
        for read, (key_hash, offset, stored_ms) in enumerate(self._followed()):
            if read == MAX_FOLLOWED:
                yield np.array(found, np.int64)
                yield from self._all_items(count)
                return
            if key_hash in self._hashes and stored_ms <= self._until:
                found.append(offset)
                if len(found) == length:
                    yield np.array(found, np.int64)
                    found, length = [], 2 * length
        yield np.array(found, np.int64)

    def _followed(self) -> Iterator[tuple[int, int, int]]:
        """Yield hash, log offset and time (ms after the file's first) of the chains' items."""
        of_slots = {wanted % self._geometry.slots for wanted in self._hashes}
        for slot in sorted(of_slots):
            number, item = self._head(slot)
            while item is not None:
                key_hash, offset, seconds, previous = item
                # The first item's time counts from before the file.
                stored_ms = 1000 * seconds if number > 1 else 0
                if stored_ms <= self._after:
                    break
                yield key_hash, offset, stored_ms
                # Chains lead to older items only: a corrupt one ends, it never loops.
                number = previous if previous < number else 0
                item = self._item(number, slot)

    def _head(self, slot: int) -> tuple[int, Fields | None]:
        """Return the newest item of a slot and its number.

        A slot may be read while it is being written: it is read again where it is invalid.
        """
        number, item = 0, None
        for _ in range(_SLOT_READS):
            number = self._file.slot(slot)
            item = self._item(number, slot)
            if item is not None or not number:
                break
        return number, item

    def _item(self, number: int, slot: int) -> Fields | None:
        """Return the item if it is one of the slot."""
        if not 0 < number < self._geometry.items:
            return None
        item = self._file.item(number)
        valid = item[1] >= 0 and item[0] % self._geometry.slots == slot
        return item if valid else None

    def _all_items(self, count: int) -> Iterator[Ints]:
        """Yield the same from reading all items, the newest first."""
        for last in range(count, 1, -_BLOCK_ITEMS):
            first = max(1, last - _BLOCK_ITEMS)
            items = self._file.items(first, last)
            rows = among(items["key_hash"].astype(np.int32), self._wanted)[::-1]
            items = items[rows]
            stored_ms = 1000 * np.where(first + rows > 1, items["seconds"].astype(np.int64), 0)
            valid = (stored_ms > self._after) & (stored_ms <= self._until)
            valid &= items["physical_offset"] >= 0
            yield items["physical_offset"][valid].astype(np.int64)
