"""Log and key index agree: each key has its item, each item its key, and each chain its order.

The items of the files lie in the order of the log, so both are read once, side by side. RocketMQ
5.5 indexes tags, too, under the key `T#tag`: such items may be there, and none is missed.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.config import StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import DISPATCHED, INDEXED, SharedState
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints, to_text
from pyrocket.formats.index_file import (
    Geometry,
    IndexHeader,
    is_table_name,
    key_hashes,
    seconds_after,
)
from pyrocket.formats.properties import TAGS
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record import SYS_DAMAGED
from pyrocket.formats.record_fields import Bools, RecordFields
from pyrocket.index.keys.index_file import IndexFile, IndexFileInfo, inspect
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.keys.key_items import key_items
from pyrocket.metadata.identity import Identity
from pyrocket.metadata.store_sizes import TELL_INDEX
from pyrocket.tools.verify.finding import Findings, Severity, repair

NO_TAGS = "without tags, which only RocketMQ 5.5 puts into it"

_BLOCK_ITEMS = 1 << 18
_TAG_TYPE = "T"
_REBUILD = repair(f"rebuilds the key index from the log, {NO_TAGS}.")
_LEAVE = (
    "Nothing, but for a RocketMQ broker, which does not find them: whoever reads looks through the"
    " log for them, and the next writer that appends puts them into the index, if it has one."
)
FOLLOWED = "it is not full, and yet another file follows it."
_PLACE = np.dtype([("file", "i8"), ("seconds", "i8")])
_ANY = -1 << 40
_NO_PAIRS = np.zeros(0, np.dtype([("offset", np.int64), ("hash", np.int64)]))

Pairs = npt.NDArray[np.void]
"""Log offset and key hash of items."""

ItemPlaces = npt.NDArray[np.void]
"""Of items: the number of the `file`, and the `seconds` after its begin."""


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
    """Compares the key index with the log, run by run.

    live: the last file may still grow. complete: the store was closed cleanly, so that all keys
    are indexed that ever will be; else the end of the log may wait, and the last record's rest.
    lag: see `lag_of`; what lacks an index by intent is not searched for keys.
    """

    def __init__(
        self,
        layout: Layout,
        geometry: Geometry | None,
        findings: Findings,
        *,
        live: bool,
        complete: bool,
        lag: Severity | None,
    ) -> None:
        """Make one; where nothing tells the geometry, only names are looked at."""
        self._layout, self._findings = layout, findings
        self._geometry = geometry or Geometry(1, 2)
        self._live, self._complete, self._lag = live, complete, lag
        self._index = KeyIndex(layout, self._geometry)
        self._files: list[IndexFileInfo] = []
        self._names: list[str] = []
        self._ends: list[int] = []
        self._begin = -1
        self._can_compare = geometry is not None and self._find_files()
        self._is_wanted = bool(self._files) or lag is Severity.WARNING
        self._times = KeyTimes([file for file in self._files if self._is_believed(file)])
        self._blocks = self._items()
        self._left = _NO_PAIRS, places_of(0, [], first=False)
        self._before = self._behind = 0
        self._missing, self._wrong, self._late = Counter[int](), Counter[int](), Counter[int]()

    def _find_files(self) -> bool:
        """Look how far the files go; return whether they can be compared with the log."""
        try:
            known = self._index.names()
        except StoreDamagedError:
            return False  # That is a finding of its own.
        for name in known:
            try:
                with self._index.open(name) as opened:
                    file = inspect(name, opened)
            except (StoreDamagedError, FileNotFoundError) as error:
                self._add("KEY_INDEX_DAMAGED", name, getattr(error, "message", str(error)))
                return False
            if flaw := self._flaw(file, is_last=name == known[-1]):
                self._add("KEY_INDEX_DAMAGED", name, flaw)
                return False
            if file.header.count < 2:
                break
            self._begin = self._begin if self._files else file.header.begin_offset
            self._files.append(file)
            self._names.append(name)
            self._ends.append(file.header.end_offset)
        return True

    def _flaw(self, file: IndexFileInfo, *, is_last: bool) -> str:
        """Return what is wrong with a header, as far as it is to be believed at all.

        A broker that is killed leaves a file of which readers and the next writer want nothing.
        """
        if file.header.end_offset < self._end:
            return "it ends before the file before it does."
        if not is_last and not self._index.is_full(file.header):
            return FOLLOWED
        return file.header_error if self._is_believed(file) else ""

    def _is_believed(self, file: IndexFileInfo) -> bool:
        return self._live or self._complete or self._index.is_full(file.header)

    @property
    def _end(self) -> int:
        """The log offset of the last record indexed; -1 without one."""
        return self._ends[-1] if self._ends else -1

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
        first, end = int(run.physical_offset[0]), self._end
        if not self._can_compare or (first > end and not self._complete):
            return
        if self._is_wanted:
            self._compare_run(run, first, end)
        else:
            self._behind += len(run)

    def _compare_run(self, run: RecordFields, first: int, end: int) -> None:
        self._times.feed(run)
        wanted = key_items(run)
        self._before += int((wanted.offsets < self._begin).sum())
        self._behind += int((wanted.offsets > end).sum())
        expected = _pairs(wanted.offsets, wanted.hashes)
        expected = expected[(wanted.offsets >= self._begin) & (wanted.offsets <= end)]
        found, places = self._take(int(run.physical_offset[-1]))
        of_run = (found["offset"] >= first) & (found["offset"] <= end)
        # Keys of messages that have been damaged since they were indexed may stay.
        of_run &= ~_are_damaged(run, found)
        expected = expected[~_are_damaged(run, expected)]
        found, places = found[of_run], places[of_run]
        if len(expected) != len(found) or (expected != found).any():
            self._compare(run, expected, found, places["file"])
        self._late.update(mistimed(run, found["offset"], places, self._files).tolist())

    def _compare(self, run: RecordFields, expected: Pairs, found: Pairs, files: Ints) -> None:
        """Count what is missing and what is wrong, by the number of the file."""
        missing = expected[~np.isin(expected, found)]
        if not self._complete:
            missing = missing[missing["offset"] < self._end]
        self._missing.update(np.searchsorted(self._ends, missing["offset"]).tolist())
        wrong = ~np.isin(found, expected)
        if wrong.any():
            wrong &= ~np.isin(found, _tag_pairs(run))
        self._wrong.update(files[wrong].tolist())

    def report(self, log_end: int) -> None:
        """Add what is wrong to the findings."""
        for _ in self._blocks:
            pass
        if self._complete and self._behind and self._lag is not None:
            self._report_behind(self._lag)
        if self._names:
            self._report_files(log_end)

    def _report_behind(self, lag: Severity) -> None:
        fix = _REBUILD if lag is Severity.WARNING else _LEAVE
        file = f"index/{self._names[-1]}" if self._names else "index"
        what = f"there is no index: looking for a key reads all {self._behind} messages."
        if self._is_wanted:
            what = f"{self._behind} keys of the log's end are not in the index."
        self._findings.add("KEY_INDEX_BEHIND", lag, file, what, fix)

    def _report_files(self, log_end: int) -> None:
        for name, what in self._times.wrong() if self._can_compare else ():
            self._add("KEY_INDEX_DAMAGED", name, what)
        if self._end >= log_end:
            what = "it knows messages behind the end of the log."
            self._add("KEY_INDEX_AHEAD", self._names[-1], what)
        if self._complete and self._before:
            what = f"{self._before} keys of the log's beginning are not in the index."
            self._add("KEY_INDEX_GAPS", self._names[0], what)
        for number, count in sorted(self._missing.items()):
            self._add("KEY_INDEX_GAPS", self._names[number], f"{count} keys are not in the index.")
        for number, count in sorted(self._wrong.items()):
            what = f"{count} items are of no key of the log."
            self._add("KEY_INDEX_WRONG", self._names[number], what)
        for number, count in sorted(self._late.items()):
            what = f"{count} items have another time than the log."
            self._add("KEY_INDEX_WRONG", self._names[number], what)

    def _take(self, last: int) -> tuple[Pairs, ItemPlaces]:
        """Return the items up to those of the record at log offset `last`, and where they are."""
        parts: list[tuple[Pairs, ItemPlaces]] = [self._left]
        while not len(parts[-1][0]) or parts[-1][0]["offset"].max() <= last:
            block = next(self._blocks, None)
            if block is None:
                break
            parts.append(block)
        known, places = (np.concatenate(each) for each in zip(*parts, strict=True))
        count = int(np.searchsorted(known["offset"], last, side="right"))
        self._left = known[count:], places[count:]
        return known[:count], places[:count]

    def _items(self) -> Iterator[tuple[Pairs, ItemPlaces]]:
        """Yield the items of all files in blocks, and where they are."""
        for number, name in enumerate(self._names):
            # Files may be cleaned away meanwhile.
            with suppress(FileNotFoundError), self._index.open(name) as file:
                yield from self._items_of(number, name, file)

    def _items_of(
        self, number: int, name: str, file: IndexFile
    ) -> Iterator[tuple[Pairs, ItemPlaces]]:
        """Yield the same of one file, looking at the chains on the way."""
        count = file.header().count
        heads = np.zeros(self._geometry.slots, np.int32)
        broken = 0
        for first in range(1, count, _BLOCK_ITEMS):
            items = file.items(first, min(count, first + _BLOCK_ITEMS))
            broken += _broken_links(items, first, heads)
            places = places_of(number, items["seconds"], first=first == 1)
            yield _pairs(items["physical_offset"], items["key_hash"]), places
        if not (self._live and name == self._names[-1]):
            broken += int((file.slots() != heads).sum())
            if wrong := wrong_slots(file.header(), int((heads != 0).sum())):
                self._add("KEY_INDEX_DAMAGED", name, wrong)
        if broken:
            self._add("KEY_INDEX_CHAINS", name, f"{broken} chains do not lead to their items.")

    def _add(self, code: str, name: str, what: str) -> None:
        self._findings.add(code, Severity.WARNING, f"index/{name}", what, _REBUILD)


def _are_damaged(run: RecordFields, items: Pairs) -> Bools:
    """Return which items point into placeholders: of a long one, several may."""
    row = np.searchsorted(run.physical_offset, items["offset"], side="right") - 1
    return (run.sys_flag & SYS_DAMAGED != 0)[row]


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


def wrong_slots(header: IndexHeader, filled: int) -> str:
    """Return what is wrong with the number of slots; RocketMQ up to 4.7.0 counted every item."""
    if filled <= header.slot_count < header.count:
        return ""
    return f"it says that it has {header.slot_count} slots that are not empty, and has {filled}."


class KeyTimes:
    """Compares the times of the headers of files with those of the log, run by run."""

    def __init__(self, files: Sequence[IndexFileInfo]) -> None:
        self._files = files
        self._left = sorted(
            (offset, number, word, time)
            for number, file in enumerate(files)
            for word, offset, time in (
                ("begins", file.header.begin_offset, file.header.begin_timestamp),
                ("ends", file.header.end_offset, file.header.end_timestamp),
            )
        )
        self._wrong: dict[int, str] = {}

    def feed(self, run: RecordFields) -> None:
        """Compare with the times of a run; what was compared is done with."""
        known, left = run.physical_offset, self._left
        first = bisect_left(left, (int(known[0]),))
        last = bisect_right(left, (int(known[-1]) + 1,))
        unseen = []
        for edge in left[first:last]:
            offset, number, word, time = edge
            row = int(known.searchsorted(offset))
            if row == len(known) or known[row] != offset:
                unseen.append(edge)
                continue
            stored = int(run.store_timestamp[row])
            if stored != time:
                what = f"it says that it {word} at {time} ms, and the log at {stored}."
                self._wrong.setdefault(number, what)
        self._left[first:last] = unseen

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield the names of files whose times are wrong, and what is."""
        for _, number, _, _ in self._left:
            if not self._files[number].times_agree:
                what = "it says that it begins or ends when its items deny it."
                self._wrong.setdefault(number, what)
        for number, what in sorted(self._wrong.items()):
            yield self._files[number].name, what


def places_of(file: int, seconds: npt.ArrayLike, *, first: bool) -> ItemPlaces:
    """Return the places of a block of items; if it is the `first`, of all from the first item on.

    That one counts from where the file before it ended, and nobody looks at its time.
    """
    known = np.asarray(seconds, np.int64)
    places = np.empty(len(known), _PLACE)
    places["file"], places["seconds"] = file, known
    places["seconds"][: int(first)] = _ANY
    return places


def mistimed(
    run: RecordFields, offsets: Ints, places: ItemPlaces, files: Sequence[IndexFileInfo]
) -> npt.NDArray[np.int64]:
    """Return the files of those items, of records at these log offsets, whose time is another's."""
    rows = np.minimum(np.searchsorted(run.physical_offset, offsets), len(run) - 1)
    known = (run.physical_offset[rows] == offsets) & (places["seconds"] != _ANY)
    stored, wrong = run.store_timestamp[rows], np.zeros(len(places), bool)
    for number in np.unique(places["file"]).tolist():
        expected = seconds_after(files[number].header.begin_timestamp, stored)
        wrong |= known & (places["file"] == number) & (places["seconds"] != expected)
    return places["file"][wrong]


def lag_of(layout: Layout, identity: Identity) -> Severity | None:
    """Return what it means if the index lacks keys of the end of a store closed cleanly.

    A broker with an index has all of them in it, and so has a writer, whose words say so; they are
    believed in a copy, too. A writer without an index lags behind by intent, and one that appends
    nothing builds nothing: a note. Of a snapshot, which has no words, it is known: nothing.
    """
    if not identity.store_id:
        return Severity.WARNING if any(layout.index.glob("*")) else None
    try:
        page = SharedState(layout.state, writable=False)
    except (FileNotFoundError, ValueError, StoreDamagedError):
        return None
    try:
        return Severity.WARNING if page[INDEXED] >= page[DISPATCHED] > 0 else Severity.NOTE
    finally:
        page.close()
