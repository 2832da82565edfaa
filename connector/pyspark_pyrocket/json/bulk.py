"""Decodes a column in bulk; a part with a bad row is split, down to single rows. Pure."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Faults = dict[int, str]
"""Row → the reason why it is bad."""


class BadRowError(Exception):
    """At least one row is bad; `row` is the first bad row, if known."""

    def __init__(self, row: int | None = None) -> None:
        super().__init__(row)
        self.row = row


_PARTS = 8
_FEW = 8
"""Up to this many rows, decoding one by one is faster than bisecting."""

_MANY = 1024
"""Maximum rows of a part with bad rows: each bad row causes the part to be decoded again."""

_BYTES = 1 << 19
"""Maximum bytes of bodies that are converted to Python objects (of 20 times the size) at a time."""


def read_in_parts(
    bodies: pa.BinaryArray,
    at_once: Callable[[pa.BinaryArray], pa.Array],
    one_by_one: Callable[[list[bytes]], tuple[pa.Array, Faults]],
) -> tuple[pa.Array, Faults]:
    """Return the column of all bodies, and the bad rows.

    at_once: decodes a part; raises BadRowError if a row in it is bad. The rows before and after
        the bad row are then decoded in bulk again. If the number of the bad row is unknown, the
        part is split.
    one_by_one: decodes a list of bodies, including bad ones.
    """
    columns: list[pa.Array] = []
    faults: Faults = {}
    waiting = [(0, len(bodies))]
    while waiting:
        first, last = waiting.pop()
        part = bodies.slice(first, last - first)
        column = bad = None
        if len(part) > 1:
            try:
                column = at_once(part)
            except BadRowError as error:
                bad = error.row
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
    """Return the column of all bodies, decoded one by one, and the bad rows."""
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


def _cut(first: int, last: int, bad: int | None) -> list[tuple[int, int]]:
    """Return smaller parts, in order: the bad row alone, or parts of equal size."""
    if last - first > _MANY:
        return _pieces(first, last, _MANY)
    if bad is None or not 0 <= bad < last - first:
        return _pieces(first, last, -(-(last - first) // _PARTS))
    at = first + bad
    return [(a, b) for a, b in ((first, at), (at, at + 1), (at + 1, last)) if a < b]


def _pieces(first: int, last: int, rows: int) -> list[tuple[int, int]]:
    return [(at, min(at + rows, last)) for at in range(first, last, rows)]
