"""Which of the waiting timers are to be delivered: not cancelled, not stored anew since."""

import numpy as np
import numpy.typing as npt

from pyrocket.formats.timer_entry import CANCELS, TimerEntries, places

Bools = npt.NDArray[np.bool_]


def living(entries: TimerEntries) -> Bools:
    """Return whether each is to be delivered; the entries hold all of the slots they are in."""
    copies = entries["copies"]
    alive = np.asarray(copies != CANCELS)
    if not copies.any():
        return alive
    named = places(entries)
    alive &= ~np.isin(named, named[copies == CANCELS])
    alive[_replaced(named, copies)] = False
    return alive


def _replaced(
    named: npt.NDArray[np.uint64], copies: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    """Return the rows that have a later copy."""
    rows = np.flatnonzero(np.isin(named, named[copies > 0]))
    rows = rows[np.lexsort((copies[rows], named[rows]))]
    names = named[rows]
    # The last row of each name has the most copies behind it.
    last = np.searchsorted(names, names, side="right") - 1
    return rows[copies[rows] < copies[rows][last]]
