"""The state of one group in one queue: its cursor, and the messages in flight before it."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyrocket.broker.pop.events import Ack, Deliver, OfQueue, Repeat, Saved, Show, SkipTo, Start
from pyrocket.broker.pop.in_flight import COLUMNS, DTYPES, InFlight

_LOST_ATTEMPTS = 1
"""The attempts of a message whose delivery may be missing from the log."""


class QueueState:
    """The messages that a group has received from one queue.

    Every message before `next` is acked unless it is in `flight`.
    """

    __slots__ = ("flight", "known", "next", "saved")

    def __init__(self) -> None:
        self.next = 0
        self.flight = InFlight()
        self.known = False
        self.saved: tuple[int, ...] = (-1,)

    @property
    def committed(self) -> int:
        """The lowest offset in flight, or the cursor."""
        first = self.flight.first()
        return self.next if first is None else first

    def apply(self, event: OfQueue) -> None:
        """Apply a state change."""
        match event:
            case Start():
                self.flight.clear()
                self.next, self.known = event.offset, True
            case SkipTo():
                if event.offset > self.committed:
                    self.flight.remove_below(event.offset)
                    self.next = max(self.next, event.offset)
                self.known = True
            case Saved():
                self.saved = (event.before, event.offset)
            case Deliver():
                self._deliver(event)
            case Ack() | Show():
                self._change(event)
            case Repeat():
                self._repeat(event)

    def invisible(self, offsets: Sequence[int], now: int) -> set[int]:
        """Return the offsets of the messages that are in flight and invisible."""
        rows = {offset: self.flight.find(offset) for offset in offsets}
        return {
            offset for offset, row in rows.items() if row >= 0 and self.flight.visible[row] > now
        }

    def hide(self, offsets: Sequence[int], until: int) -> dict[int, int]:
        """Keep messages invisible at least until a time; return the pops of messages in flight."""
        flight, pops = self.flight, dict[int, int]()
        for row in filter(lambda row: row >= 0, map(flight.find, offsets)):
            flight.show(row, max(int(flight.visible[row]), until))
            pops[int(flight.offset[row])] = int(flight.pop[row])
        return pops

    def remove(self, pops: Mapping[int, int]) -> None:
        """Ack messages, except those that have been delivered again with another pop."""
        flight = self.flight
        for offset, pop in pops.items():
            row = flight.find(offset)
            if row >= 0 and flight.pop[row] == pop:
                flight.remove(row)
        flight.tidy()

    def truncate(self, end: int) -> None:
        """Remove messages at or after `end`, which a recovery has truncated."""
        if end < self.next:
            self.flight.remove_from(end)
            self.next = end

    def reach_from(self, offset: int) -> None:
        """Put messages at or after `offset` in flight again if their records are lost.

        Earlier messages are treated as acked.
        """
        first = self.flight.first()
        self.next = max(self.next, offset)
        begin = self.next if first is None else min(first, self.next)
        self._insert(range(offset, begin), 0)

    def _repeat(self, event: Repeat) -> None:
        offsets = [
            offset
            for offset in event.offsets
            if offset < self.next and self.flight.find(offset) < 0
        ]
        self._insert(offsets, event.visible)

    def _insert(self, offsets: Sequence[int], visible: int) -> None:
        """Put messages before the cursor in flight, with one attempt."""
        lost, old = InFlight(), self.flight.columns()
        for offset in sorted(offsets):
            lost.show(lost.add(offset, attempt=_LOST_ATTEMPTS), visible)
        both = {name: np.concatenate([new, old[name]]) for name, new in lost.columns().items()}
        order = np.argsort(both["offset"], kind="stable")
        self.flight.set_columns([column[order] for column in both.values()])

    def _reach(self, cursor: int) -> None:
        """Put messages before `cursor` in flight if the records of their delivery are lost."""
        if not self.known and not len(self.flight):
            self.next = max(self.next, cursor)
        for offset in range(self.next, cursor):
            self.flight.add(offset, attempt=_LOST_ATTEMPTS)
        self.next = max(self.next, cursor)

    def _change(self, event: Ack | Show) -> None:
        self._reach(event.cursor)
        for row in filter(lambda row: row >= 0, map(self.flight.find, event.offsets)):
            if isinstance(event, Ack):
                self.flight.remove(row)
            else:
                self.flight.show(row, event.visible, event.pop or None)
        self.flight.tidy()

    def _deliver(self, event: Deliver) -> None:
        self._reach(event.cursor)
        keys = event.keys or [0] * len(event.offsets)
        every = zip(event.offsets, event.attempts, event.delivered, keys, strict=True)
        for offset, attempt, delivered, key in every:
            if offset >= self.next:
                row = self.flight.add(offset, attempt=attempt, key=key)
            else:
                # -1: acked by a later change that the snapshot includes.
                row = self.flight.find(offset)
                if row >= 0 and key:
                    self.flight.key[row] = key
            if row >= 0 and delivered:
                self.flight.deliver(
                    row, attempt=attempt, visible=event.visible, pop=event.pop, since=event.now
                )
        self.next = max(self.next, event.next)

    def to_json(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        columns = self.flight.columns()
        rows = [
            b64encode(np.ascontiguousarray(columns[name]).tobytes()).decode() for name in COLUMNS
        ]
        return {"next": self.next, "saved": list(self.saved), "rows": rows}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "QueueState":
        """Return the state of a snapshot. Raises ValueError, KeyError, TypeError."""
        state = cls()
        state.next, state.known = int(content["next"]), True
        state.saved = tuple(map(int, content["saved"]))
        texts = zip(content["rows"], DTYPES.values(), strict=True)
        state.flight.set_columns([np.frombuffer(b64decode(text), kind) for text, kind in texts])
        return state
