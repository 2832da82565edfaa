"""A compact table of the messages of one queue that are in flight for a group.

It has numpy columns sorted by offset. New messages are added at the end; acked messages are marked,
and removed later in bulk. A change therefore takes logarithmic time.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints

_ACKED = -1
"""Replaces the time in `visible` if the message is acked and its row is not yet removed."""

_NEVER = 2**63 - 1
DTYPES = {
    "offset": np.int64,
    "attempt": np.int32,
    "visible": np.int64,
    "pop": np.uint32,
    "key": np.int64,
    "since": np.int64,
}
COLUMNS = tuple(DTYPES)
_MIN_ROWS = 16


class InFlight:
    """The table. A row is a position in the columns, valid until rows are added or removed.

    Columns:
        offset: Queue offset.
        attempt: Number of deliveries; 0 if the message is waiting for earlier messages.
        visible: Time from which it may be received, epoch ms.
        pop: Identifies its last delivery; 0 if there was none.
        key: Hash of its sharding key, or of its original topic in a retry topic; 0 for none.
        since: Time of its last delivery, epoch ms; 0 if it was not delivered from this queue.
    """

    __slots__ = (*COLUMNS, "_acked", "_count", "_head", "_next")

    offset: npt.NDArray[np.int64]
    attempt: npt.NDArray[np.int32]
    visible: npt.NDArray[np.int64]
    pop: npt.NDArray[np.uint32]
    key: npt.NDArray[np.int64]
    since: npt.NDArray[np.int64]

    def __init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return self._count - self._acked

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return sum(getattr(self, name).nbytes for name in COLUMNS)

    @property
    def last_delivery(self) -> int:
        """The time of the last delivery, epoch ms; 0 if there was none."""
        return int(self.since[: self._count].max(initial=0))

    def clear(self) -> None:
        """Remove all rows."""
        for name, dtype in DTYPES.items():
            setattr(self, name, np.zeros(0, dtype))
        self._count = self._acked = self._head = 0
        self._next = _NEVER

    def first(self) -> int | None:
        """Return the lowest offset in flight; None if there is none."""
        while self._head < self._count and self.visible[self._head] == _ACKED:
            self._head += 1
        return int(self.offset[self._head]) if self._head < self._count else None

    def find(self, offset: int) -> int:
        """Return the row of an offset; -1 if it is not in flight."""
        row = int(np.searchsorted(self.offset[: self._count], offset))
        if row < self._count and self.offset[row] == offset and self.visible[row] != _ACKED:
            return row
        return -1

    def add(self, offset: int, *, attempt: int, key: int = 0) -> int:
        """Add a message with the highest offset, visible and undelivered; return its row."""
        if self._count == len(self.offset):
            self._resize(max(_MIN_ROWS, self._count + self._count // 2))
        row, self._count = self._count, self._count + 1
        self.offset[row], self.attempt[row], self.key[row] = offset, attempt, key
        self.visible[row] = self.pop[row] = self.since[row] = 0
        self._next = 0
        return row

    def deliver(self, row: int, *, attempt: int, visible: int, pop: int, since: int) -> None:
        """Record a delivery."""
        self.attempt[row], self.pop[row], self.since[row] = attempt, pop, since
        self.show(row, visible)

    def show(self, row: int, visible: int, pop: int | None = None) -> None:
        """Set the time at which a message becomes visible, and the pop that may ack it."""
        self.visible[row] = max(visible, 0)
        self._next = min(self._next, max(visible, 0))
        if pop is not None:
            self.pop[row] = pop

    def remove(self, row: int) -> None:
        """Remove a message; other rows remain valid until `tidy`."""
        self.visible[row] = _ACKED
        self._acked += 1

    def tidy(self) -> None:
        """Free the space of removed messages if they are the majority."""
        if self._acked > max(_MIN_ROWS, len(self)):
            self._keep(np.flatnonzero(self.visible[: self._count] != _ACKED))

    def remove_below(self, offset: int) -> None:
        """Remove all messages before an offset."""
        self._keep(self._alive(self.offset[: self._count] >= offset))

    def remove_from(self, offset: int) -> None:
        """Remove all messages at or after an offset."""
        self._keep(self._alive(self.offset[: self._count] < offset))

    def rows(self) -> Ints:
        """Return all rows, ascending by offset."""
        return self._alive(np.ones(self._count, bool))

    def visible_rows(self, now: int) -> Ints:
        """Return the rows that may be received now, ascending by offset."""
        if now < self._next:
            return np.zeros(0, np.int64)
        times = self.visible[: self._count]
        rows = np.flatnonzero((times <= now) & (times != _ACKED))
        if not len(rows):
            self._next = self.next_after(now) or _NEVER
        return rows

    def next_after(self, now: int) -> int | None:
        """Return the first time after `now` at which a message becomes visible."""
        times = self.visible[: self._count]
        later = times[times > now]
        return int(later.min()) if len(later) else None

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return copies of all columns without removed rows."""
        rows = self.rows()
        return {name: getattr(self, name)[rows] for name in COLUMNS}

    def set_columns(self, columns: Sequence[npt.NDArray[np.generic]]) -> None:
        """Replace all rows; `columns` are in the order of COLUMNS."""
        for (name, dtype), column in zip(DTYPES.items(), columns, strict=True):
            setattr(self, name, column.astype(dtype))
        self._count, self._acked, self._head, self._next = len(self.offset), 0, 0, 0

    def _alive(self, chosen: npt.NDArray[np.bool_]) -> Ints:
        return np.flatnonzero(chosen & (self.visible[: self._count] != _ACKED))

    def _keep(self, rows: Ints) -> None:
        for name in COLUMNS:
            setattr(self, name, getattr(self, name)[rows])
        self._count, self._acked, self._head, self._next = len(rows), 0, 0, 0

    def _resize(self, size: int) -> None:
        for name, dtype in DTYPES.items():
            column = np.zeros(size, dtype)
            column[: self._count] = getattr(self, name)[: self._count]
            setattr(self, name, column)
