"""The last batch that each query has published: `pyrocket/sink.json`, and what the log has since.

The log is the truth: each batch begins with a record that says whose it is, and the file only sums
them up. It says how many of those records it knows (`next`, an offset in their queue) and where the
last one lies; the rest is read behind it. Whoever publishes saves it now and then, and before
log files go, so that a query is known longer than its messages are kept. A file that knows more
than the log has, or other things, counts only for what the log has cleaned away.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from pyrocket.clock import Clock
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import BROKEN, in_words
from pyrocket.formats.publish_record import BEGIN, SinkRecord

_log = logging.getLogger(__name__)

LONG_TAIL = 64
"""So many records of the log make it worth while to save the file."""

FORGET_AFTER_MS = 400 * 24 * 3_600_000
"""So long after its last batch nobody replays a query any more."""

_RUNS_KEPT = 64
_ATTEMPTS = 3

Tail = Callable[[int, int], Iterator[SinkRecord | None]]
"""Yields the records [start, end) of the log's queue; None for one that a repair has replaced."""

Ends = Callable[[], tuple[int, int]]
"""Returns the queue's first offset in the log and its end."""


@dataclass(frozen=True)
class LedgerEntry:
    """The last batch of one query, its run, and the runs that were current before.

    rows, bytes, content_bytes, content, version, boot, began: of the batch; see `SinkRecord`. In a
    file of version 1 there are no bytes (0).
    """

    identity: str
    target: str
    batch: int
    run: str
    rows: int
    content: int
    offset: int
    time_ms: int
    past_runs: tuple[str, ...] = ()
    boot: str = ""
    began: int = 0
    version: int = 1
    bytes: int = 0
    content_bytes: int = 0

    def after(self, record: SinkRecord) -> "LedgerEntry":
        """Return the entry that a later record of the query makes of it."""
        past = [run for run in self.past_runs if run != record.run]
        if self.run and record.run != self.run:
            past.append(self.run)
        later = replace(_entry_of(record), past_runs=tuple(past[-_RUNS_KEPT:]))
        if record.kind == BEGIN:
            return later
        # A FENCE says nothing of the batch.
        return replace(later, **{name: getattr(self, name) for name in _OF_BATCH})


_OF_BATCH = ("rows", "bytes", "content_bytes", "content", "version")


@dataclass
class _State:
    """What is known: entries by key, from the records before `next`, of which `last` is the last.

    `last` is a log offset; -1 without records.
    """

    next: int
    last: int
    entries: dict[str, LedgerEntry]
    saved_next: int = 0

    def take(self, record: SinkRecord | None) -> None:
        """Take the next record of the log."""
        if record is None:
            _log.error(
                "record %d of the batches that were published was damaged: of which it was is not"
                " known, and it is published again if its query repeats it",
                self.next,
            )
            self.next += 1
            return
        known = self.entries.get(record.key)
        self.entries[record.key] = known.after(record) if known else _entry_of(record)
        self.next, self.last = self.next + 1, record.offset

    def forget(self, oldest_ms: int) -> None:
        """Forget queries that have published nothing since."""
        kept = {key: one for key, one in self.entries.items() if one.time_ms >= oldest_ms}
        self.entries = kept


class SinkLedger:
    """The ledger of one store; threads may share it.

    Looking takes no turn; it is saved in a section.
    """

    def __init__(self, layout: Layout, ends: Ends, tail: Tail, clock: Clock) -> None:
        self._path, self._scratch = layout.sink_ledger, layout.scratch
        self._ends, self._tail, self._clock = ends, tail, clock
        self._lock = Lock()
        self._known: _State | None = None

    def last(self, key: str) -> LedgerEntry | None:
        """Return what is known of a query. Raises StoreDamagedError."""
        return self._read().entries.get(key)

    def newest(self, identity: str) -> LedgerEntry | None:
        """Return the last batch of a query, whatever its target. Raises StoreDamagedError."""
        known = (entry for entry in self._read().entries.values() if entry.identity == identity)
        return max(known, key=lambda entry: entry.offset, default=None)

    def save_if_long(self) -> None:
        """Save the file if many records have come since. The caller is in a section."""
        state = self._read()
        if state.next - state.saved_next > LONG_TAIL:
            self._save(state)

    def save(self) -> None:
        """Save the file, durably, if the log knows more. The caller is in a section."""
        state = self._read()
        if state.next != state.saved_next:
            self._save(state)

    def _save(self, state: _State) -> None:
        state.forget(self._clock() - FORGET_AFTER_MS)
        queries = {key: asdict(entry) for key, entry in sorted(state.entries.items())}
        content = {
            "next": state.next,
            "last": state.last,
            "queries": queries,
        }
        replace_file(self._path, encode_own(self._path, content), self._scratch)
        state.saved_next = state.next

    def _read(self) -> _State:
        """Return what file and log say together; what was read before is not read again."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                with suppress(OffsetOutOfRangeError):  # Cleaned away while we looked.
                    self._known = self._go_on()
                    return self._known
            self._known = self._go_on()
            return self._known

    def _go_on(self) -> _State:
        first, end = self._ends()
        state = self._known
        # Of records that have been cleaned away since only the file knows.
        if state is None or state.next < first or not self._agrees(state, first, end):
            state = self._begin(first, end)
        state.next = max(state.next, first)
        for record in self._tail(state.next, end) if state.next < end else ():
            state.take(record)
        return state

    def _begin(self, first: int, end: int) -> _State:
        """Return what the file says, as far as it agrees with the log."""
        state = _load(self._path)
        if self._agrees(state, first, end):
            return state
        _log.warning("%s is not of this log: what it says of cleaned messages counts", self._path)
        tail = self._tail(first, end) if first < end else ()
        begin = next((record.offset for record in tail if record), 2**63 - 1)
        return _State(0, -1, {key: one for key, one in state.entries.items() if one.offset < begin})

    def _agrees(self, state: _State, first: int, end: int) -> bool:
        """Whether the last record that is known is where it was, or cleaned away."""
        if state.next > end:
            return False
        if state.next <= first:
            return True
        record = next(self._tail(state.next - 1, state.next))
        return record is None or record.offset == state.last


def check_ledger(layout: Layout) -> None:
    """Raise StoreDamagedError where the file cannot be read."""
    _load(layout.sink_ledger)


def _load(path: Path) -> _State:
    data = read_or_none(path)
    if data is None:
        return _State(0, -1, {})
    try:
        content = decode_own(path, data)
        entries = {key: _entry(value) for key, value in content["queries"].items()}
        known = int(content["next"])
        return _State(known, int(content["last"]), entries, saved_next=known)
    except BROKEN as error:
        raise StoreDamagedError(
            f"{path} cannot be parsed ({in_words(error)}).",
            remedy="Restore it from a copy, or remove it: batches whose messages are still in"
            " the log stay known, older ones could be published twice.",
        ) from error


def _entry_of(record: SinkRecord) -> LedgerEntry:
    return LedgerEntry(
        identity=record.identity,
        target=record.target,
        batch=record.batch,
        run=record.run,
        rows=record.rows,
        content=record.content,
        offset=record.offset,
        time_ms=record.time_ms,
        boot=record.boot,
        began=record.began,
        version=record.version,
        bytes=record.bytes,
        content_bytes=record.content_bytes,
    )


def _entry(value: dict[str, Any]) -> LedgerEntry:
    return LedgerEntry(**{**value, "past_runs": tuple(value["past_runs"])})
