"""Parses the properties blocks of many records to columns, without a loop over records.

The blocks of a batch are adjacent in one buffer. All separators are found in one pass. They divide
the buffer into (row, name, value) entries by the rules of `properties`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints, run_offsets, runs_equal, text_runs, to_text
from pyrocket.formats.properties import (
    NAME_END,
    REAL_QID,
    REAL_TOPIC,
    RESERVED_PROPERTIES,
    VALUE_END,
)

_NAME_END = bytes([NAME_END])


class PropertyColumns:
    """Reads n properties blocks (a binary array of length n, no nulls)."""

    def __init__(self, blocks: pa.BinaryArray) -> None:
        self._count = len(blocks)
        # Text divided at ASCII separators is valid text, so one check covers all names and values.
        blocks = to_text(blocks)
        self._buffer = blocks.buffers()[2] or pa.py_buffer(b"")
        offsets = run_offsets(blocks).astype(np.int64)
        self._row_starts, self._row_ends = offsets[:-1], offsets[1:]
        last = int(self._row_ends[-1]) if self._count else 0
        self._data = np.frombuffer(self._buffer, np.uint8)[:last]

    @cached_property
    def _closed(self) -> Ints:
        """The ends of the values that are followed by a separator."""
        first = int(self._row_starts[0]) if self._count else 0
        return np.flatnonzero(self._data[first:] == VALUE_END) + first

    @cached_property
    def _alike(self) -> dict[str, tuple[Ints, Ints]] | None:
        """By name, the starts and ends of values in each record, if all records have equal names.

        Messages of one producer usually have the same names in the same order. Then only the ends
        of values must be found, and comparing names is much cheaper than collecting them.
        """
        width, rest = divmod(len(self._closed), max(self._count, 1))
        # A record has `width` values if its last value ends with the record.
        if rest or not width or (self._closed[width - 1 :: width] != self._row_ends - 1).any():
            return None
        by_name: dict[str, tuple[Ints, Ints]] = {}
        for column in range(width):
            starts = self._closed[column - 1 :: width] + 1 if column else self._row_starts
            ends = self._closed[column::width]
            name, mark, _ = self._data[starts[0] : ends[0]].tobytes().partition(_NAME_END)
            word = name + mark
            values = starts + len(word)
            # A property is valid if it has a name and a value.
            if not (name and mark and (values < ends).all()):
                return None
            if not runs_equal(self._data, starts, word).all():
                return None
            by_name[name.decode()] = values, ends
        return by_name if len(by_name) == width else None

    @cached_property
    def _entries(self) -> tuple[Ints, Ints, Ints]:
        """The name starts, name ends and value ends of all valid entries."""
        first = int(self._row_starts[0]) if self._count else 0
        marks = np.flatnonzero(self._data[first:] <= VALUE_END) + first
        starts: Ints
        name_ends: Ints
        ends: Ints
        if self._is_regular(marks):
            name_ends, ends = marks[::2], marks[1::2]
            starts = np.concatenate((self._row_starts[:1], ends[:-1] + 1))[: len(ends)]
        else:
            ends, starts = self._cut(first)
            name_marks = np.flatnonzero(self._data[first:] == NAME_END) + first
            name_ends = _first_after(name_marks, starts, ends)
        counts = (name_ends > starts) & (ends > name_ends + 1)
        if not counts.all():
            starts, name_ends, ends = starts[counts], name_ends[counts], ends[counts]
        return starts, name_ends, ends

    def _is_regular(self, marks: Ints) -> bool:
        """Whether names and values alternate, and each record ends with a separator."""
        if len(marks) % 2:
            return False
        # Comparing pairs halves the work.
        kinds = self._data[marks].view(">u2")
        if not (kinds == NAME_END << 8 | VALUE_END).all():
            return False
        return bool((self._data[self._row_ends[self._row_ends > self._row_starts] - 1] == 2).all())

    @cached_property
    def _rows(self) -> Ints:
        """The row of each entry."""
        _, _, ends = self._entries
        before = np.searchsorted(ends, self._row_ends, side="right")
        return np.repeat(np.arange(self._count), np.diff(before, prepend=0))

    def _cut(self, first: int) -> tuple[Ints, Ints]:
        """Return the ends (before the separator) and the starts of the entries."""
        ends = self._closed
        filled = self._row_ends[self._row_ends > self._row_starts]
        unclosed = filled[self._data[filled - 1] != VALUE_END]
        step = np.ones(len(ends), np.int64)
        if len(unclosed):
            # The end of a row also ends an entry, without a separator; the next entry starts there.
            ends = np.concatenate((ends, unclosed))
            step = np.concatenate((step, np.zeros(len(unclosed), np.int64)))
            order = np.lexsort((step, ends))
            ends, step = ends[order], step[order]
        starts = np.empty_like(ends)
        starts[:1] = first
        starts[1:] = ends[:-1] + step[:-1]
        return ends, starts

    @cached_property
    def _coded(self) -> tuple[npt.NDArray[np.int32], list[str]]:
        """The name of each entry as a code, and the names by code."""
        starts, name_ends, _ = self._entries
        encoded = text_runs(self._buffer, starts, name_ends).dictionary_encode()
        return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()

    @property
    def names(self) -> set[str]:
        return set(self._coded[1] if self._alike is None else self._alike)

    def column(self, name: str) -> pa.StringArray:
        """Return the property of each record: null if missing, the last value if repeated."""
        if self._alike is not None:
            if name not in self._alike:
                return pa.nulls(self._count, pa.string())
            return text_runs(self._buffer, *self._alike[name])
        codes, names = self._coded
        code = names.index(name) if name in names else -1
        entries = np.flatnonzero(codes == code)
        rows = self._rows[entries]
        _, name_ends, value_ends = self._entries
        starts, ends = self._row_starts.copy(), self._row_starts.copy()
        starts[rows], ends[rows] = name_ends[entries] + 1, value_ends[entries]
        missing = np.ones(self._count, bool)
        missing[rows] = False
        text = text_runs(self._buffer, starts, ends)
        return pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), text)

    def as_map(self, *, reserved: bool) -> pa.MapArray:
        """Return the reserved properties, or the user properties, as name → value per record."""
        if self._alike is not None:
            return self._map_of_alike(self._alike, reserved)
        codes, names = self._coded
        of_kind = np.array([(name in RESERVED_PROPERTIES) is reserved for name in names], bool)
        entries = self._drop_repeated(np.flatnonzero(of_kind[codes]))
        counts = np.bincount(self._rows[entries], minlength=self._count)
        starts, name_ends, ends = (positions[entries] for positions in self._entries)
        keys = text_runs(self._buffer, starts, name_ends)
        values = text_runs(self._buffer, name_ends + 1, ends)
        bounds = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
        return pa.MapArray.from_arrays(bounds, keys, values)

    def _map_of_alike(self, alike: dict[str, tuple[Ints, Ints]], reserved: bool) -> pa.MapArray:
        """Return the same if all records have the same names; copies only the values."""
        kept = [name for name in alike if (name in RESERVED_PROPERTIES) is reserved]
        offsets = np.arange(self._count + 1, dtype=np.int32) * np.int32(len(kept))
        starts, ends = (_row_by_row([alike[name][at] for name in kept]) for at in (0, 1))
        keys, values = _in_turn(kept, self._count), text_runs(self._buffer, starts, ends)
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values)

    def _drop_repeated(self, entries: Ints) -> Ints:
        """Return the last entry of each (record, name), because names in a map are unique."""
        codes, names = self._coded
        if len(entries) < 2:
            return entries
        pairs = self._rows[entries] * len(names) + codes[entries]
        if (np.diff(pairs) > 0).all() or len(np.unique(pairs)) == len(pairs):
            return entries
        _, last = np.unique(pairs[::-1], return_index=True)
        return entries[np.sort(len(pairs) - 1 - last)]


def _in_turn(names: list[str], count: int) -> pa.StringArray:
    """Return the sequence of names, `count` times."""
    raw = [name.encode() for name in names]
    starts = np.cumsum([0, *map(len, raw)], dtype=np.int32)
    bounds = np.add.outer(np.arange(count + 1, dtype=np.int32) * starts[-1], starts[:-1]).ravel()
    data = pa.py_buffer(b"".join(raw) * count)
    return pa.Array.from_buffers(pa.string(), len(raw) * count, [None, pa.py_buffer(bounds), data])


def _row_by_row(columns: list[Ints]) -> Ints:
    """Return the first element of each column, then the second element of each, and so on."""
    return columns[0] if len(columns) == 1 else np.array(columns, np.int64).T.ravel()


def _first_after(marks: Ints, starts: Ints, ends: Ints) -> Ints:
    """Return the first mark at or after each start; the entry's end if it contains no mark."""
    if len(marks) == len(starts) and ((marks >= starts) & (marks < ends)).all():
        return marks
    padded = np.append(marks, np.iinfo(np.int64).max)
    return np.minimum(padded[np.searchsorted(marks, starts)], ends)


_QUEUE_ID = "^[0-9]{1,9}$"


@dataclass(frozen=True)
class RealPlaces:
    """For each message, the index of its real topic in `names` and its real queue; -1 for none."""

    names: list[str]
    codes: npt.NDArray[np.int32]
    queue_ids: Ints


def real_places(properties: PropertyColumns) -> RealPlaces:
    """Return the destinations REAL_TOPIC and REAL_QID of messages in a system topic."""
    topics = properties.column(REAL_TOPIC).dictionary_encode()
    codes = pc.fill_null(topics.indices, -1).to_numpy()
    return RealPlaces(
        topics.dictionary.to_pylist(), codes, numbers(properties.column(REAL_QID), _QUEUE_ID)
    )


def numbers(text: pa.StringArray, pattern: str) -> Ints:
    """Parse texts that match `pattern` as integers; -1 for other texts."""
    number = pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar("-1"))
    return pc.fill_null(number, "-1").cast(pa.int64()).to_numpy()
