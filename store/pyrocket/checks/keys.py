"""Log and key index agree: each key has its item, each item its key, and each chain its order.

The items of the files lie in the order of the log, so both are read once, side by side. RocketMQ
5.5 indexes tags, too, under the key `T#tag`: such items may be there, and none is missed.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.checks.finding import Findings, Severity, repair
from pyrocket.config import StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.key_table import Geometry, is_table_name, key_hashes
from pyrocket.formats.properties import TAGS
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.runs import Ints, to_text
from pyrocket.index.key_file import KeyFile
from pyrocket.index.key_index import KeyIndex
from pyrocket.index.key_items import key_items
from pyrocket.sizes import TELL_INDEX

NO_TAGS = "without tags, which only RocketMQ 5.5 puts into it"

_BLOCK_ITEMS = 1 << 18
_TAG_TYPE = "T"
_REBUILD = repair(f"rebuilds the key index from the log, {NO_TAGS}.")
_NO_PAIRS = np.zeros(0, np.dtype([("offset", np.int64), ("hash", np.int64)]))

Pairs = npt.NDArray[np.void]
"""Log offset and key hash of items."""


def report_geometry(findings: Findings, config: StoreConfig, *, told: bool) -> None:
    """Add that the files do not say how many slots and items they have; `told`, somebody did."""
    if told:
        what = "only what was given says how many slots and items its files have."
        fix = repair("notes that in pyrocket/store.json.")
        findings.add("INDEX_GEOMETRY", Severity.NOTE, "index", what, fix)
        return
    what = f"its files fit neither {config.index_slots} slots and {config.index_items} items nor"
    what += " four items a slot, and nothing else says how many they have."
    findings.add("INDEX_GEOMETRY", Severity.ERROR, "index", what, TELL_INDEX)


class KeyCheck:
    """Compares the key index with the log, run by run; `live`, the last file may still grow."""

    def __init__(
        self, layout: Layout, geometry: Geometry | None, findings: Findings, *, live: bool
    ) -> None:
        """Make one; where nothing tells the geometry, only names are looked at."""
        self._layout, self._findings, self._live = layout, findings, live
        self._geometry = geometry or Geometry(1, 2)
        self._index = KeyIndex(layout, self._geometry)
        self._names, self.begin, self.end = self._sound_files() if geometry else ([], 0, 0)
        self._blocks = self._items()
        self._left = _NO_PAIRS
        self._missing, self._wrong = 0, 0

    def _sound_files(self) -> tuple[list[str], int, int]:
        """Return the files that can be read, and from where to where in the log they go."""
        begin = end = 0
        names: list[str] = []
        for name in self._index.names():
            try:
                header = self._index.header(name)
            except (StoreDamagedError, FileNotFoundError) as error:
                self._add("KEY_INDEX_DAMAGED", name, getattr(error, "message", str(error)))
                return [], 0, 0
            if header.count < 2:
                break
            if header.end_offset < end:
                self._add("KEY_INDEX_DAMAGED", name, "it ends before the file before it does.")
                return [], 0, 0
            begin, end = begin if names else header.begin_offset, header.end_offset
            names.append(name)
        return names, begin, end

    def check_names(self) -> None:
        """Look for files that are none of an index."""
        folder = self._layout.index
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not is_table_name(path.name) or not path.is_file():
                file = str(path.relative_to(self._layout.root))
                fix = repair("moves it to pyrocket/quarantine.")
                what = "this is no file of a store."
                self._findings.add("FOREIGN_FILE", Severity.ERROR, file, what, fix)

    def feed(self, run: RecordFields) -> None:
        """Compare the keys of a run, all of whose records are whole, with the items."""
        if int(run.physical_offset[0]) >= self.end:
            return
        wanted = key_items(run)
        expected = _pairs(wanted.offsets, wanted.hashes)
        # Of the last record indexed some items may be missing.
        expected = expected[(expected["offset"] >= self.begin) & (expected["offset"] < self.end)]
        found = self._take(int(run.physical_offset[-1]))
        found = found[(found["offset"] >= run.physical_offset[0]) & (found["offset"] < self.end)]
        if len(expected) != len(found) or (expected != found).any():
            both = np.intersect1d(expected, found)
            self._missing += len(np.setdiff1d(expected, both))
            others = np.setdiff1d(found, both)
            self._wrong += len(np.setdiff1d(others, _tag_pairs(run)) if len(others) else others)

    def report(self, log_end: int) -> None:
        """Add what is wrong to the findings."""
        for _ in self._blocks:
            pass
        if not self._names:
            return
        name = self._names[-1]
        if self.end >= log_end:
            self._add("KEY_INDEX_AHEAD", name, "it knows messages behind the end of the log.")
        if self._missing:
            self._add("KEY_INDEX_GAPS", name, f"{self._missing} keys are not in the index.")
        if self._wrong:
            self._add("KEY_INDEX_WRONG", name, f"{self._wrong} items are of no key of the log.")

    def _take(self, last: int) -> Pairs:
        """Return the next items, up to those of the record at log offset `last`."""
        parts = [self._left]
        while not len(parts[-1]) or parts[-1]["offset"].max() <= last:
            block = next(self._blocks, None)
            if block is None:
                break
            parts.append(block)
        known = np.concatenate(parts)
        count = int(np.searchsorted(known["offset"], last, side="right"))
        self._left = known[count:]
        return known[:count]

    def _items(self) -> Iterator[Pairs]:
        """Yield the items of all files in blocks, looking at the chains on the way."""
        for name in self._names:
            # Files may be cleaned away meanwhile.
            with suppress(FileNotFoundError), self._index.open(name) as file:
                yield from self._items_of(name, file)

    def _items_of(self, name: str, file: KeyFile) -> Iterator[Pairs]:
        count = file.header().count
        heads = np.zeros(self._geometry.slots, np.int32)
        broken = 0
        for first in range(1, count, _BLOCK_ITEMS):
            items = file.items(first, min(count, first + _BLOCK_ITEMS))
            broken += _broken_links(items, first, heads)
            yield _pairs(items["physical_offset"], items["key_hash"])
        if not (self._live and name == self._names[-1]):
            broken += int((file.slots() != heads).sum())
        if broken:
            self._add("KEY_INDEX_CHAINS", name, f"{broken} chains do not lead to their items.")

    def _add(self, code: str, name: str, what: str) -> None:
        self._findings.add(code, Severity.WARNING, f"index/{name}", what, _REBUILD)


def _pairs(offsets: Ints, hashes: Ints) -> Pairs:
    pairs = np.empty(len(offsets), _NO_PAIRS.dtype)
    pairs["offset"], pairs["hash"] = offsets, hashes
    return pairs


def _tag_pairs(run: RecordFields) -> Pairs:
    """Return what RocketMQ 5.5 would have put into the index for the tags of a run."""
    tags = PropertyColumns(run.properties()).column(TAGS)
    rows = np.flatnonzero(tags.is_valid().to_numpy(zero_copy_only=False))
    topics = to_text(run.topics()).take(pa.array(rows))
    keys = pc.binary_join_element_wise(_TAG_TYPE, tags.drop_null(), "#")
    return _pairs(run.physical_offset[rows], key_hashes(topics, keys))


def _broken_links(items: npt.NDArray[np.void], first: int, heads: npt.NDArray[np.int32]) -> int:
    """Count items that do not point to the one before them in their slot; move `heads` on."""
    slots = items["key_hash"].astype(np.int64) % len(heads)
    numbers = np.arange(first, first + len(items), dtype=np.int32)
    order = np.argsort(slots, kind="stable")
    new = np.diff(slots[order], prepend=-1) != 0
    expected = np.empty(len(items), np.int32)
    expected[order] = np.where(new, heads[slots[order]], np.roll(numbers[order], 1))
    heads[slots[order]] = numbers[order]
    return int((items["previous"] != expected).sum())
