"""Many keys looked for in one index file at once: all chains are followed together, step by step.

Where chains are long, as that of a key which most messages have, all items are looked through
instead: that costs the same however they are linked.
"""

import numpy as np
import numpy.typing as npt

from pyrocket.formats.key_table import HEADER_BYTES, ITEM, ITEM_BYTES, SLOT, SLOT_BYTES, Geometry
from pyrocket.formats.runs import Ints
from pyrocket.index.key_file import SLACK_MS, KeyFile

MOST_FOLLOWED = 1 << 16
"""Items of a file that are read one by one before the file is read as a whole."""

_BLOCK_ITEMS = 1 << 20
_SLOT_READS = 3
_EVER = 2**63 - 1 - SLACK_MS
_LOW_BITS = 0xFFFFF


def among(hashes: Ints, wanted: Ints) -> npt.NDArray[np.int64]:
    """Return which of many hashes are among a few, ascending."""
    if len(wanted) == 1:
        return np.flatnonzero(hashes == wanted[0])
    may_be = np.zeros(_LOW_BITS + 1, bool)
    may_be[wanted & _LOW_BITS] = True
    rows = np.flatnonzero(may_be[hashes & _LOW_BITS])
    return rows[np.isin(hashes[rows], wanted)]


class KeySearch:
    """Looks in an open file of this geometry for keys with the hashes `wanted`.

    Only items stored in [begin_ms, end_ms] count; times are known to two seconds: see `SLACK_MS`.
    """

    def __init__(
        self, file: KeyFile, geometry: Geometry, wanted: Ints, begin_ms: int, end_ms: int
    ) -> None:
        self._file, self._geometry, self._wanted = file, geometry, wanted
        self._begin_ms, self._end_ms = begin_ms - SLACK_MS, min(end_ms, _EVER) + SLACK_MS
        self._first_ms = file.header().begin_timestamp

    def offsets(self, count: int) -> Ints:
        """Return log offsets of what may have one of the keys, in no order, perhaps repeated.

        `count` is the number of the next item, as somebody saw it: later ones may be missing.
        """
        found, read = [np.zeros(0, np.int64)], 0
        numbers, slots = self._heads()
        while len(numbers):
            read += len(numbers)
            if read > MOST_FOLLOWED:
                return self._look_through(count)
            items, good = self._items(numbers, slots)
            late = self._stored(numbers, items) + 1000 > self._begin_ms
            hits = good & late & self._is_hit(numbers, items)
            found.append(items["physical_offset"][hits].astype(np.int64))
            # Chains lead to older items only: a corrupt one ends, it never loops.
            before = items["previous"].astype(np.int64)
            goes_on = good & late & (before > 0) & (before < numbers)
            numbers, slots = before[goes_on], slots[goes_on]
        return np.concatenate(found)

    def _heads(self) -> tuple[Ints, Ints]:
        """Return the newest items of the keys' slots, and these slots.

        A slot may be read while it is being written: it is read again where it makes no sense.
        """
        slots = np.unique(self._wanted.astype(np.int64) % self._geometry.slots)
        numbers, good = np.zeros(0, np.int64), np.zeros(0, bool)
        for _ in range(_SLOT_READS):
            data = self._file.read_at(HEADER_BYTES + SLOT_BYTES * slots, SLOT_BYTES)
            numbers = np.frombuffer(data, SLOT).astype(np.int64)
            _, good = self._items(np.where(self._exists(numbers), numbers, 1), slots)
            good &= self._exists(numbers)
            if (good | (numbers == 0)).all():
                break
        return numbers[good], slots[good]

    def _exists(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        return (numbers > 0) & (numbers < self._geometry.items)

    def _items(
        self, numbers: Ints, slots: Ints
    ) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
        """Return these items, and whether they are in these slots."""
        first = self._geometry.item_position(0)
        items = np.frombuffer(self._file.read_at(first + ITEM_BYTES * numbers, ITEM_BYTES), ITEM)
        good = (items["physical_offset"] >= 0) & (items["key_hash"] % self._geometry.slots == slots)
        return items, good

    def _stored(self, numbers: Ints, items: npt.NDArray[np.void]) -> Ints:
        """Return when the items were stored; the first counts from what was before the file."""
        after = np.where(numbers > 1, items["seconds"].astype(np.int64), 0)
        return self._first_ms + 1000 * after

    def _is_hit(self, numbers: Ints, items: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        known = np.isin(items["key_hash"], self._wanted)
        known &= self._stored(numbers, items) <= self._end_ms
        return known

    def _look_through(self, count: int) -> Ints:
        found = []
        for first in range(1, count, _BLOCK_ITEMS):
            items = self._file.items(first, min(first + _BLOCK_ITEMS, count))
            rows = among(items["key_hash"].astype(np.int32), self._wanted)
            numbers, items = first + rows, items[rows]
            stored = self._stored(numbers, items)
            in_time = (stored + 1000 > self._begin_ms) & (stored <= self._end_ms)
            found.append(items["physical_offset"][in_time].astype(np.int64))
        return np.concatenate([np.zeros(0, np.int64), *found])
