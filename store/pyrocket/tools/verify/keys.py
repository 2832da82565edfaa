"""Compares the key index with the log: items, hash chains and headers.

The index files contain the items in log order, so log and index are each read once, in parallel.
RocketMQ 5.5 also indexes tags, with the key `T#tag`: such items are allowed but not required.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.base.config import StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Bools, Ints, to_text
from pyrocket.formats.index_file import (
    Geometry,
    IndexHeader,
    is_table_name,
    key_hashes,
    seconds_after,
)
from pyrocket.formats.properties import TAGS
from pyrocket.formats.record import SYS_DAMAGED
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.keys.index_file import IndexFile, IndexFileInfo, inspect
from pyrocket.index.keys.key_index import IndexCoverage, KeyIndex
from pyrocket.index.keys.key_items import key_items
from pyrocket.log.commit_log import CommitLog
from pyrocket.metadata.store_sizes import GIVE_INDEX_SIZES
from pyrocket.tools.verify.files import NOT_OF_A_STORE
from pyrocket.tools.verify.report import Findings, Severity, repair

NO_TAGS = "without tags, which only RocketMQ 5.5 indexes"

_BLOCK_ITEMS = 1 << 18
_TAG_TYPE = "T"
_REBUILD = repair(f"rebuilds the key index from the log, {NO_TAGS}.")
_LEAVE = (
    "Nothing, unless a RocketMQ broker must find these keys. Readers search the log for them,"
    " and the next writer that appends adds them to the index, if it has one."
)
_FOLLOWED = "it is not full, but another file follows it."
_ITEM_PLACE = np.dtype([("file", "i8"), ("seconds", "i8")])
_ANY_TIME = -1 << 40
"""The `seconds` of a file's first item, which are relative to the end of the previous file."""

_NO_PAIRS = np.zeros(0, np.dtype([("offset", np.int64), ("hash", np.int64)]))

Pairs = npt.NDArray[np.void]
"""Log offset and key hash of items."""

ItemPlaces = npt.NDArray[np.void]
"""For each item, the number of its `file`, and its `seconds` since the file's begin time."""


def report_geometry(findings: Findings, config: StoreConfig, *, given: bool) -> None:
    """Report index files with numbers of slots and items that the store does not determine."""
    if given:
        what = "the numbers of slots and items in its files are known only from the given options."
        fix = repair("writes them to pyrocket/store.json.")
        findings.add("INDEX_GEOMETRY", Severity.NOTE, "index", what, fix)
        return
    what = f"its files match neither {config.index_slots} slots and {config.index_items} items nor"
    what += " four items per slot, and the actual numbers are unknown."
    findings.add("INDEX_GEOMETRY", Severity.ERROR, "index", what, GIVE_INDEX_SIZES)


class KeyCheck:
    """Compares the key index with the log, run by run.

    live: the last file may still grow.
    complete: the store was closed cleanly, so all keys are indexed; otherwise keys at the end of
        the log may be missing.
    lag: see `index_lag_severity`.

    If the store has no index and needs none, messages are only counted.
    """

    def __init__(
        self,
        layout: Layout,
        log: CommitLog,
        geometry: Geometry | None,
        findings: Findings,
        *,
        live: bool,
        complete: bool,
        lag: Severity | None,
    ) -> None:
        """Prepare the check. If `geometry` is None, only file names are checked."""
        self._layout, self._findings = layout, findings
        self._geometry = geometry or Geometry(1, 2)
        self._live, self._complete, self._lag = live, complete, lag
        self._index = KeyIndex(layout, self._geometry)
        self._coverage = IndexCoverage(log, self._index)
        self._files: list[IndexFileInfo] = []
        self._ends: list[int] = []
        self._begin = -1
        self._can_compare = geometry is not None and self._find_files()
        self._is_wanted = bool(self._files) or lag is Severity.WARNING
        self._blocks = self._items()
        self._pending = _NO_PAIRS, _item_places(0, [], first=False)
        self._keys_before = self._keys_after = 0
        self._missing, self._wrong, self._late = Counter[int](), Counter[int](), Counter[int]()

    def _find_files(self) -> bool:
        """Inspect the files in order; return whether they can be compared with the log."""
        try:
            known = self._index.names()
        except StoreDamagedError:
            return False  # A finding of `check_kinds`.
        for name in known:
            try:
                with self._index.open(name) as opened:
                    file = inspect(name, opened)
            except (StoreDamagedError, FileNotFoundError) as error:
                self._add("KEY_INDEX_DAMAGED", name, getattr(error, "message", str(error)))
                return False
            if error_text := self._header_error(file, is_last=name == known[-1]):
                self._add("KEY_INDEX_DAMAGED", name, error_text)
                return False
            if file.header.count < 2:
                break
            self._begin = self._begin if self._files else file.header.begin_offset
            self._files.append(file)
            self._ends.append(file.header.end_offset)
        return True

    def _header_error(self, file: IndexFileInfo, *, is_last: bool) -> str:
        """Describe the error in a header; empty if the header is valid.

        A killed broker may leave an invalid last file, which readers and the next writer ignore.
        """
        if file.header.end_offset < self._end:
            return "it ends before the previous file does."
        if not is_last and not self._index.is_full(file.header):
            return _FOLLOWED
        return file.header_error if self._is_trusted(file) else ""

    def _is_trusted(self, file: IndexFileInfo) -> bool:
        return self._live or self._complete or self._index.is_full(file.header)

    @property
    def _end(self) -> int:
        """The log offset of the last indexed record, or -1."""
        return self._ends[-1] if self._ends else -1

    def check_names(self) -> None:
        """Report foreign files in the folder of the index."""
        folder = self._layout.index
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not is_table_name(path.name) or not path.is_file():
                fix = repair("moves it to pyrocket/quarantine.")
                self._findings.add("FOREIGN_FILE", Severity.ERROR, path, NOT_OF_A_STORE, fix)

    def feed(self, run: RecordFields) -> None:
        """Compare the keys of consecutive complete records with the items."""
        first, end = int(run.physical_offset[0]), self._end
        if not self._can_compare or (first > end and not self._complete):
            return
        if self._is_wanted:
            self._compare_run(run, first, end)
        else:
            self._keys_after += len(run)

    def _compare_run(self, run: RecordFields, first: int, end: int) -> None:
        wanted = key_items(run)
        self._keys_before += int((wanted.offsets < self._begin).sum())
        self._keys_after += int((wanted.offsets > end).sum())
        expected = _pairs(wanted.offsets, wanted.hashes)
        expected = expected[(wanted.offsets >= self._begin) & (wanted.offsets <= end)]
        indexed, places = self._take(int(run.physical_offset[-1]))
        of_run = (indexed["offset"] >= first) & (indexed["offset"] <= end)
        # The index may still have keys of messages that were damaged later.
        of_run &= ~_are_damaged(run, indexed)
        expected = expected[~_are_damaged(run, expected)]
        indexed, places = indexed[of_run], places[of_run]
        if len(expected) != len(indexed) or (expected != indexed).any():
            self._compare(run, expected, indexed, places["file"])
        self._late.update(_mistimed(run, indexed["offset"], places, self._files).tolist())

    def _compare(self, run: RecordFields, expected: Pairs, found: Pairs, files: Ints) -> None:
        """Count missing and wrong items per file number."""
        missing = expected[~np.isin(expected, found)]
        if not self._complete or self._lag is not Severity.WARNING:
            # The keys of the last record may continue in the next file.
            missing = missing[missing["offset"] < self._end]
        self._missing.update(np.searchsorted(self._ends, missing["offset"]).tolist())
        wrong = ~np.isin(found, expected)
        if wrong.any():
            wrong &= ~np.isin(found, _tag_pairs(run))
        self._wrong.update(files[wrong].tolist())

    def report(self, log_end: int) -> None:
        for _ in self._blocks:
            pass
        if self._complete and self._keys_after and self._lag is not None:
            self._report_lag(self._lag)
        if self._files:
            self._report_files(log_end)

    def _report_lag(self, lag: Severity) -> None:
        fix = _REBUILD if lag is Severity.WARNING else _LEAVE
        file = f"index/{self._files[-1].name}" if self._files else "index"
        what = f"there is no index: a query by key reads all {self._keys_after} messages."
        if self._is_wanted:
            what = f"{self._keys_after} keys at the end of the log are not in the index."
        self._findings.add("KEY_INDEX_BEHIND", lag, file, what, fix)

    def _report_files(self, log_end: int) -> None:
        for file in filter(self._is_trusted, self._files) if self._can_compare else ():
            if what := self._coverage.wrong_time(file):
                self._add("KEY_INDEX_DAMAGED", file.name, what)
        if self._end >= log_end:
            what = "it has items that point beyond the end of the log."
            self._add("KEY_INDEX_AHEAD", self._files[-1].name, what)
        if self._complete and self._keys_before:
            what = f"{self._keys_before} keys at the beginning of the log are not in the index."
            self._add("KEY_INDEX_GAPS", self._files[0].name, what)
        for number, count in sorted(self._missing.items()):
            self._add(
                "KEY_INDEX_GAPS", self._files[number].name, f"{count} keys are not in the index."
            )
        for number, count in sorted(self._wrong.items()):
            what = f"{count} items match no key in the log."
            self._add("KEY_INDEX_WRONG", self._files[number].name, what)
        for number, count in sorted(self._late.items()):
            what = f"{count} items have times that differ from the log."
            self._add("KEY_INDEX_WRONG", self._files[number].name, what)

    def _take(self, last: int) -> tuple[Pairs, ItemPlaces]:
        """Return the items up to the record at log offset `last`, and their places."""
        parts: list[tuple[Pairs, ItemPlaces]] = [self._pending]
        while not len(parts[-1][0]) or parts[-1][0]["offset"].max() <= last:
            block = next(self._blocks, None)
            if block is None:
                break
            parts.append(block)
        known, places = (np.concatenate(column) for column in zip(*parts, strict=True))
        count = int(np.searchsorted(known["offset"], last, side="right"))
        self._pending = known[count:], places[count:]
        return known[:count], places[:count]

    def _items(self) -> Iterator[tuple[Pairs, ItemPlaces]]:
        """Yield the items of all files in blocks, and their places."""
        for number, checked in enumerate(self._files):
            # Cleaning may delete files during the check.
            with suppress(FileNotFoundError), self._index.open(checked.name) as file:
                yield from self._items_of(number, checked.name, file)

    def _items_of(
        self, number: int, name: str, file: IndexFile
    ) -> Iterator[tuple[Pairs, ItemPlaces]]:
        """Yield the items of one file, and check its hash chains."""
        count = file.header().count
        heads = np.zeros(self._geometry.slots, np.int32)
        broken = 0
        for first in range(1, count, _BLOCK_ITEMS):
            items = file.items(first, min(count, first + _BLOCK_ITEMS))
            broken += _broken_links(items, first, heads)
            places = _item_places(number, items["seconds"], first=first == 1)
            yield _pairs(items["physical_offset"], items["key_hash"]), places
        if not (self._live and name == self._files[-1].name):
            broken += int((file.slots() != heads).sum())
            if wrong := _wrong_slots(file.header(), int((heads != 0).sum())):
                self._add("KEY_INDEX_DAMAGED", name, wrong)
        if broken:
            self._add("KEY_INDEX_CHAINS", name, f"{broken} chains do not lead to their items.")

    def _add(self, code: str, name: str, what: str) -> None:
        self._findings.add(code, Severity.WARNING, f"index/{name}", what, _REBUILD)


def _are_damaged(run: RecordFields, items: Pairs) -> Bools:
    """Return which items point into placeholders; a long placeholder may have several items."""
    row = np.searchsorted(run.physical_offset, items["offset"], side="right") - 1
    return (run.sys_flag & SYS_DAMAGED != 0)[row]


def _pairs(offsets: Ints, hashes: Ints) -> Pairs:
    pairs = np.empty(len(offsets), _NO_PAIRS.dtype)
    pairs["offset"], pairs["hash"] = offsets, hashes
    return pairs


def _tag_pairs(run: RecordFields) -> Pairs:
    """Return the items that RocketMQ 5.5 would have added for the tags of a run."""
    tags = run.property_columns.column(TAGS)
    rows = np.flatnonzero(tags.is_valid().to_numpy(zero_copy_only=False))
    topics = to_text(run.topics).take(pa.array(rows))
    keys = pc.binary_join_element_wise(_TAG_TYPE, tags.drop_null(), "#")
    return _pairs(run.physical_offset[rows], key_hashes(topics, keys))


def _broken_links(items: npt.NDArray[np.void], first: int, heads: npt.NDArray[np.int32]) -> int:
    """Count items that do not point to the previous item in their slot; update `heads`."""
    slots = items["key_hash"].astype(np.int64) % len(heads)
    numbers = np.arange(first, first + len(items), dtype=np.int32)
    order = np.argsort(slots, kind="stable")
    new = np.diff(slots[order], prepend=-1) != 0
    expected = np.empty(len(items), np.int32)
    expected[order] = np.where(new, heads[slots[order]], np.roll(numbers[order], 1))
    heads[slots[order]] = numbers[order]
    return int((items["previous"] != expected).sum())


def _wrong_slots(header: IndexHeader, filled: int) -> str:
    """Describe a wrong slot count, or return ""; RocketMQ up to 4.7.0 counted every item."""
    if filled <= header.slot_count < header.count:
        return ""
    return f"its header counts {header.slot_count} used slots, but it has {filled}."


def _item_places(file: int, seconds: npt.ArrayLike, *, first: bool) -> ItemPlaces:
    """Return the places of a block of items; `first`: the block has the file's first item."""
    known = np.asarray(seconds, np.int64)
    places = np.empty(len(known), _ITEM_PLACE)
    places["file"], places["seconds"] = file, known
    places["seconds"][: int(first)] = _ANY_TIME
    return places


def _mistimed(
    run: RecordFields, offsets: Ints, places: ItemPlaces, files: Sequence[IndexFileInfo]
) -> npt.NDArray[np.int64]:
    """Return the file numbers of the items whose times differ from those of their records."""
    rows = np.minimum(np.searchsorted(run.physical_offset, offsets), len(run) - 1)
    known = (run.physical_offset[rows] == offsets) & (places["seconds"] != _ANY_TIME)
    stored, wrong = run.store_timestamp[rows], np.zeros(len(places), bool)
    for number in np.unique(places["file"]).tolist():
        expected = seconds_after(files[number].header.begin_timestamp, stored)
        wrong |= known & (places["file"] == number) & (places["seconds"] != expected)
    return places["file"][wrong]
