"""The properties blocks of many records as columns, with no loop over records or properties.

The blocks of a batch lie behind one another in one buffer. The separators are found in one pass
each; they cut the buffer into (row, name, value) entries under the rules of `properties`.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.properties import NAME_END, RESERVED_PROPERTIES, VALUE_END
from pyrocket.formats.runs import Ints, runs_equal, text_runs, to_text


class PropertyColumns:
    """Looks into n properties blocks (a binary array of length n, no nulls)."""

    def __init__(self, blocks: pa.BinaryArray) -> None:
        self._count = len(blocks)
        # Text cut at separators, which are ASCII, is text: one check serves all names and values.
        blocks = to_text(blocks)
        self._buffer = blocks.buffers()[2] or pa.py_buffer(b"")
        offsets = np.frombuffer(blocks.buffers()[1], np.int32, self._count + 1, blocks.offset * 4)
        self._row_starts, self._row_ends = (
            offsets[:-1].astype(np.int64),
            offsets[1:].astype(np.int64),
        )
        self._find_entries()

    def _find_entries(self) -> None:
        """Set rows, name starts and ends and value ends of all entries that count."""
        first, last = (self._row_starts[0], self._row_ends[-1]) if self._count else (0, 0)
        self._data = np.frombuffer(self._buffer, np.uint8)[:last]
        marks = np.flatnonzero(self._data[first:] <= VALUE_END) + first
        if self._is_regular(marks):
            name_ends, ends = marks[::2], marks[1::2]
            starts = np.concatenate((self._row_starts[:1], ends[:-1] + 1))[: len(ends)]
        else:
            ends, starts = self._cut(self._data, int(first))
            name_marks = np.flatnonzero(self._data[first:] == NAME_END) + first
            name_ends = _first_after(name_marks, starts, ends)
        counts = (name_ends > starts) & (ends > name_ends + 1)
        if not counts.all():
            starts, name_ends, ends = starts[counts], name_ends[counts], ends[counts]
        self._name_starts, self._name_ends, self._value_ends = starts, name_ends, ends

    def _is_regular(self, marks: Ints) -> bool:
        """Whether names and values take turns and every record closes its last value."""
        if len(marks) % 2:
            return False
        # Compared in pairs, which halves the work.
        kinds = self._data[marks].view(">u2")
        if not (kinds == NAME_END << 8 | VALUE_END).all():
            return False
        return bool((self._data[self._row_ends[self._row_ends > self._row_starts] - 1] == 2).all())

    @cached_property
    def _rows(self) -> Ints:
        """The record of each entry."""
        before = np.searchsorted(self._value_ends, self._row_ends, side="right")
        return np.repeat(np.arange(self._count), np.diff(before, prepend=0))

    @cached_property
    def _width(self) -> int:
        """How many entries each record has, if all have the same number, else 0."""
        width, rest = divmod(len(self._value_ends), max(self._count, 1))
        if rest or not width:
            return 0
        firsts, lasts = self._name_starts[::width], self._value_ends[width - 1 :: width]
        inside = (firsts >= self._row_starts) & (lasts <= self._row_ends)
        return width if inside.all() else 0

    def _cut(self, data: npt.NDArray[np.uint8], first: int) -> tuple[Ints, Ints]:
        """Return where the entries end (before their separator) and start."""
        ends = np.flatnonzero(data[first:] == VALUE_END) + first
        filled = self._row_ends[self._row_ends > self._row_starts]
        unclosed = filled[data[filled - 1] != VALUE_END]
        step = np.ones(len(ends), np.int64)
        if len(unclosed):
            # A row's end closes an entry but is no byte of it: the next one starts right there.
            ends = np.concatenate((ends, unclosed))
            step = np.concatenate((step, np.zeros(len(unclosed), np.int64)))
            order = np.lexsort((step, ends))
            ends, step = ends[order], step[order]
        starts = np.empty_like(ends)
        starts[:1] = first
        starts[1:] = ends[:-1] + step[:-1]
        return ends, starts

    @cached_property
    def _alike(self) -> list[str] | None:
        """The names of the first record, if all records have the same, in the same order.

        One producer's messages usually do, and comparing is much cheaper than collecting.
        """
        width = self._width
        if not width:
            return None
        bounds = zip(self._name_starts[:width], self._name_ends[:width], strict=True)
        words = [self._data[start:end].tobytes() for start, end in bounds]
        for column, name in enumerate(words):
            starts, ends = self._name_starts[column::width], self._name_ends[column::width]
            if (ends - starts != len(name)).any():
                return None
            if not runs_equal(self._data, starts, name).all():
                return None
        names = [word.decode("utf-8", "replace") for word in words]
        return names if len(set(names)) == width else None

    @cached_property
    def _coded(self) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Each entry's name as a code, and the names by code."""
        encoded = self._texts(self._name_starts, self._name_ends).dictionary_encode()
        return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()

    def column(self, name: str) -> pa.StringArray:
        """Return the property of each record; null where a record has none, the last if several."""
        if self._alike is not None and name in self._alike:
            return self._values(slice(self._alike.index(name), None, len(self._alike)))
        if self._alike is not None:
            return pa.nulls(self._count, pa.string())
        codes, names = self._coded
        code = names.index(name) if name in names else -1
        entries = np.flatnonzero(codes == code)
        rows = self._rows[entries]
        starts, ends = self._row_starts.copy(), self._row_starts.copy()
        starts[rows], ends[rows] = self._name_ends[entries] + 1, self._value_ends[entries]
        missing = np.ones(self._count, bool)
        missing[rows] = False
        text = self._texts(starts, ends)
        return pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), text)

    def as_map(self, *, reserved: bool) -> pa.MapArray:
        """Return RocketMQ's own properties, or the user's, as name → value of each record."""
        entries, offsets = self._entries_of_map(reserved)
        starts, ends = self._name_starts[entries], self._name_ends[entries]
        keys = self._texts(starts, ends)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, self._values(entries))

    def _entries_of_map(self, reserved: bool) -> tuple[Ints | slice, Ints]:
        """Return the entries that belong in the map, and each record's offsets into them."""
        if self._alike is not None:
            kept = _columns_kept(self._alike, reserved)
            offsets = np.arange(self._count + 1, dtype=np.int32) * np.int32(len(kept))
            if len(kept) == 1:
                return slice(int(kept[0]), None, len(self._alike)), offsets
            every = np.arange(self._count)[:, None] * len(self._alike) + kept
            return every.ravel(), offsets
        codes, names = self._coded
        of_kind = np.zeros(len(names), bool)
        of_kind[_columns_kept(names, reserved)] = True
        entries = self._drop_repeated(np.flatnonzero(of_kind[codes]))
        per_row = np.bincount(self._rows[entries], minlength=self._count)
        return entries, np.concatenate(([0], np.cumsum(per_row)))

    def _values(self, entries: Ints | slice) -> pa.StringArray:
        return self._texts(self._name_ends[entries] + 1, self._value_ends[entries])

    def _texts(self, starts: Ints, ends: Ints) -> pa.StringArray:
        return text_runs(self._buffer, starts, ends)

    def _drop_repeated(self, entries: Ints) -> Ints:
        """Keep the last entry of each (record, name): a map has a name once."""
        codes, names = self._coded
        if len(entries) < 2:
            return entries
        pairs = self._rows[entries] * len(names) + codes[entries]
        if (np.diff(pairs) > 0).all() or len(np.unique(pairs)) == len(pairs):
            return entries
        _, last = np.unique(pairs[::-1], return_index=True)
        return entries[np.sort(len(pairs) - 1 - last)]


def _columns_kept(names: list[str], reserved: bool) -> Ints:
    """Return the positions of the names that are RocketMQ's own, or that are not."""
    return np.array(
        [at for at, name in enumerate(names) if (name in RESERVED_PROPERTIES) is reserved], np.int64
    )


def _first_after(marks: Ints, starts: Ints, ends: Ints) -> Ints:
    """Return the first mark at or after each start, or the entry's end if there is none in it."""
    if len(marks) == len(starts) and ((marks >= starts) & (marks < ends)).all():
        return marks
    padded = np.append(marks, np.iinfo(np.int64).max)
    return np.minimum(padded[np.searchsorted(marks, starts)], ends)
