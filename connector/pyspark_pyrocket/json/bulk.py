"""A column made at once, or, where something in it is wrong, row by row around that place. Pure."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Faults = dict[int, str]
"""Row → what is wrong with it."""


class NotSoundError(Exception):
    """Not every row is sound; `row` is the first that is not, as far as that is known."""

    def __init__(self, row: int | None = None) -> None:
        super().__init__(row)
        self.row = row


_PARTS = 8
_FEW = 8
"""So few rows are faster read one by one than found."""

_MANY = 1024
"""A part with a bad row has at most so many: where most are bad, all is read again for each."""

_BYTES = 1 << 19
"""Bodies of so many bytes are Python's objects at a time, which are twenty times as big."""


def read_in_parts(
    bodies: pa.BinaryArray,
    at_once: Callable[[pa.BinaryArray], pa.Array],
    one_by_one: Callable[[list[bytes]], tuple[pa.Array, Faults]],
) -> tuple[pa.Array, Faults]:
    """Return the column of all bodies, and what is wrong with which.

    `at_once` raises NotSoundError where not every row is sound. What stands before and behind the
    bad one is read at once again; where it is not known which it is, ever smaller parts are.
    """
    columns: list[pa.Array] = []
    faults: Faults = {}
    waiting = [(0, len(bodies))]
    while waiting:
        first, last = waiting.pop()
        part = bodies.slice(first, last - first)
        column, bad = (None, None) if len(part) < 2 else _tried(at_once, part)
        if column is None and len(part) > _FEW:
            waiting += reversed(_cut(first, last, bad))
            continue
        if column is None:
            column, wrong = read_by_row(part, one_by_one)
            faults |= {first + row: what for row, what in wrong.items()}
        columns.append(column)
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns), faults


def read_by_row(
    bodies: pa.BinaryArray, one_by_one: Callable[[list[bytes]], tuple[pa.Array, Faults]]
) -> tuple[pa.Array, Faults]:
    """Return the column of all bodies, read a few at a time, and what is wrong with which."""
    columns: list[pa.Array] = []
    faults: Faults = {}
    totals = np.cumsum(pc.binary_length(bodies).to_numpy(), dtype=np.int64)
    first = before = 0
    while first < len(bodies) or not columns:
        last = max(int(np.searchsorted(totals, before + _BYTES, side="right")), first + 1)
        column, wrong = one_by_one(bodies.slice(first, last - first).to_pylist())
        faults |= {first + row: what for row, what in wrong.items()}
        columns.append(column)
        first, before = last, int(totals[last - 1]) if last <= len(totals) else 0
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns), faults


def _tried(
    at_once: Callable[[pa.BinaryArray], pa.Array], part: pa.BinaryArray
) -> tuple[pa.Array | None, int | None]:
    """Return the column, or None and the row that is known to be bad, if one is."""
    try:
        return at_once(part), None
    except NotSoundError as error:
        return None, error.row


def _cut(first: int, last: int, bad: int | None) -> list[tuple[int, int]]:
    """Return smaller parts, in their order: the bad row alone, or parts of the same size."""
    if last - first > _MANY:
        return _pieces(first, last, _MANY)
    if bad is None or not 0 <= bad < last - first:
        return _pieces(first, last, -(-(last - first) // _PARTS))
    at = first + bad
    return [(a, b) for a, b in ((first, at), (at, at + 1), (at + 1, last)) if a < b]


def _pieces(first: int, last: int, rows: int) -> list[tuple[int, int]]:
    return [(at, min(at + rows, last)) for at in range(first, last, rows)]
