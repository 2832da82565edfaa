"""How deeply a JSON body is nested, counted before it is parsed. Pure.

Spark's own parser stops at 1,000 levels (Jackson's `StreamReadConstraints.maxNestingDepth`). The
limit here is the same and does not depend on the remaining stack. The parser and the converters
have enough stack for bodies up to the limit; a deeper body is corrupt.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_pyrocket.arrow_types import bounds_of

MAX_DEPTH = 1000
"""Levels of objects and arrays, the outermost included."""

_FRAMES = 4 * MAX_DEPTH
"""The stack frames for a body of MAX_DEPTH: one for each level to parse it, three to convert it."""

_OPENING, _CLOSING, _QUOTE, _BACKSLASH = b'[]"\\'
_CASE = 0xDF
"""A mask that maps `{` to `[` and `}` to `]`."""

_CHUNK_BYTES = 1 << 17
"""A chunk fits into a core's cache, together with the arrays computed from it."""

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


def first_too_deep(bodies: pa.BinaryArray) -> int | None:
    """Return the first row whose body is nested deeper than MAX_DEPTH, or None.

    Examines only bodies with more than MAX_DEPTH bytes.
    """
    bounds = bounds_of(bodies)
    if not (np.diff(bounds) > MAX_DEPTH).any():
        return None
    data = np.frombuffer(bodies.buffers()[2], np.uint8)[: bounds[-1]]
    openings = _openings(data, int(bounds[0]))
    per_body = np.diff(np.searchsorted(openings, bounds))
    for row in np.flatnonzero(per_body > MAX_DEPTH).tolist():
        if _depth(data[bounds[row] : bounds[row + 1]]) > MAX_DEPTH:
            return int(row)
    return None


def depth_of(body: bytes) -> int:
    """Return the depth of a body's first value; brackets inside strings are ignored."""
    return _depth(np.frombuffer(body, np.uint8))


def is_too_deep(body: bytes) -> bool:
    if len(body) <= MAX_DEPTH or body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return False
    return depth_of(body) > MAX_DEPTH


def _openings(data: Bytes, first: int) -> Positions:
    """Return the positions of opening brackets at `first` or later, including those in strings."""
    openings = [
        np.flatnonzero((data[at : at + _CHUNK_BYTES] & _CASE) == _OPENING) + at
        for at in range(first, len(data), _CHUNK_BYTES)
    ]
    return np.concatenate(openings)


def _depth(body: Bytes) -> int:
    folded = body & _CASE
    brackets = np.flatnonzero((folded == _OPENING) | (folded == _CLOSING))
    if not len(brackets):
        return 0
    brackets = brackets[~_are_in_strings(body, brackets)]
    levels = np.cumsum(np.where(folded[brackets] == _OPENING, 1, -1))
    ends = np.flatnonzero(levels <= 0)
    of_first_value = levels[: ends[0]] if len(ends) else levels
    return int(of_first_value.max(initial=0))


def _are_in_strings(body: Bytes, brackets: Positions) -> npt.NDArray[np.bool_]:
    """Return for each bracket whether an odd number of unescaped quotes precedes it."""
    quotes = body == _QUOTE
    escaped = _after_odd_backslashes(body)
    quotes[escaped[escaped < len(body)]] = False
    odd_between = np.bitwise_xor.reduceat(quotes.view(np.uint8), np.concatenate(([0], brackets)))
    return np.bitwise_xor.accumulate(odd_between[:-1]) == 1


def _after_odd_backslashes(body: Bytes) -> Positions:
    """Return the positions just after an odd number of backslashes."""
    backslashes = np.flatnonzero(body == _BACKSLASH)
    if not len(backslashes):
        return backslashes
    numbers = np.arange(len(backslashes))
    begins = np.concatenate(([True], np.diff(backslashes) > 1))
    run_lengths = numbers - np.maximum.accumulate(np.where(begins, numbers, 0)) + 1
    return backslashes[run_lengths % 2 == 1] + 1


_lock = Lock()
_users = 0
_limit_before = 0


@contextmanager
def room_for_deep_bodies() -> Iterator[None]:
    """Raise Python's recursion limit as needed for MAX_DEPTH levels, and restore it afterwards.

    The limit is shared by all threads: the last thread to leave restores it.
    """
    global _users, _limit_before
    with _lock:
        if not _users:
            _limit_before = sys.getrecursionlimit()
            sys.setrecursionlimit(_limit_before + _FRAMES)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                sys.setrecursionlimit(_limit_before)
