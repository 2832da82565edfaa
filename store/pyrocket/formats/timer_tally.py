"""The number of timers in each bucket: consecutive rows of 40 bytes, little-endian.

 0  timed (8)   timers are indexed up to this queue offset
 8  start (8)   the bucket's name; -1 for a mark, which ends the rows of one update
16  count (8)   entries added to the bucket; in a mark, the number of rows before it
24  sum (8)     sum of the entries' checks, modulo 2^64; in a mark, sum of the checks of all
                rows before it, except marks
32  check (8)   check of all preceding fields
"""

import numpy as np
import numpy.typing as npt

from pyrocket.formats.timer_entry import check_of

TALLY = np.dtype(
    [("timed", "<i8"), ("start", "<i8"), ("count", "<i8"), ("sum", "<u8"), ("check", "<u8")]
)
TALLY_BYTES = TALLY.itemsize
MARK = -1

TallyRows = npt.NDArray[np.void]


def tally_rows(timed: int, hours: dict[int, tuple[int, int]]) -> TallyRows:
    """Return rows with the counts and sums by bucket, and a mark; `sealed` sets their checks."""
    rows = np.zeros(len(hours) + 1, TALLY)
    rows["timed"], rows["start"][:-1] = timed, list(hours)
    rows["count"][:-1] = [count for count, _ in hours.values()]
    rows["sum"][:-1] = [total for _, total in hours.values()]
    rows["start"][-1] = MARK
    return rows


def sealed(rows: TallyRows, first: int = 0) -> TallyRows:
    """Return all rows of a file, with the marks and checks set from row `first` on."""
    rows = rows.copy()
    marks = rows["start"] == MARK
    new = np.arange(len(rows)) >= first
    plain = new & ~marks
    rows["check"][plain] = _checks(rows[plain])
    sums = _sums(rows, marks)
    own = new & marks
    rows["count"][own], rows["sum"][own] = np.flatnonzero(own), sums[own]
    rows["check"][own] = _checks(rows[own])
    return rows


def decode_tally(data: bytes, timed: int) -> TallyRows | None:
    """Return the rows up to the mark of `timed`; None if the mark is missing or a row is corrupt.

    Rows after the mark are newer than `timed`, or were written by a writer that died.
    """
    rows = np.frombuffer(data, TALLY, len(data) // TALLY_BYTES)
    at = np.flatnonzero((rows["start"] == MARK) & (rows["timed"] == timed))
    if not len(at):
        return None
    rows = rows[: int(at[0]) + 1]
    total = _sums(rows, rows["start"] == MARK)[-1]
    mark = rows[-1]
    whole = int(mark["count"]) == len(rows) - 1 and mark["sum"] == total
    return rows if whole and (rows["check"] == _checks(rows)).all() else None


def _sums(rows: TallyRows, marks: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    return np.cumsum(np.where(marks, np.uint64(0), rows["check"]), dtype=np.uint64)


def _checks(rows: TallyRows) -> npt.NDArray[np.uint64]:
    return check_of(rows["timed"], rows["start"], rows["count"], rows["sum"])
