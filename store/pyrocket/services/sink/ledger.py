"""Reads the last published batch of each query from `pyrocket/sink.json` and the log after it.

Every batch in the log begins with a publish record; the file is a summary of these records. The
summary covers the records before `next`, an offset in their queue, and contains the log offset of
the last of them; later records are read from the queue. The publisher saves the file from time to
time and before log files are deleted, so that queries stay known after their messages are deleted.
If the file and the log disagree, the file is used only for records that are no longer in the log.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from threading import Lock
from typing import Any

from pyrocket.base.clock import Clock
from pyrocket.disk.layout import Layout
from pyrocket.engine.reader import Reader
from pyrocket.errors import PLACEHOLDER, OffsetOutOfRangeError, RecordDamagedError
from pyrocket.formats.publish_record import BEGIN, SinkRecord, decode_sink_records
from pyrocket.formats.system_topics import SINK_TOPIC
from pyrocket.metadata.json_table import OwnFile
from pyrocket.services.sink.batch import ONCE

_log = logging.getLogger(__name__)

LONG_TAIL = 64
"""The number of new records after which the publisher saves the file."""

FORGET_AFTER_MS = 400 * 24 * 3_600_000
"""Time after its last batch until a query is forgotten."""

_FORGET_ONCE_AFTER_MS = 24 * 3_600_000
"""The same for `SinkBatch.once`: every such batch is a query of its own."""

_MAX_PAST_RUNS = 64
_ATTEMPTS = 3


@dataclass(frozen=True)
class LedgerEntry:
    """The last batch of one query, its run, and the earlier runs.

    rows, bytes, content_bytes, content, version, boot, began: see `SinkRecord`. bytes is 0 if read
        from a file of version 1.
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
        """Return the entry after a later record of the query."""
        past = [run for run in self.past_runs if run != record.run]
        if self.run and record.run != self.run:
            past.append(self.run)
        later = replace(_entry_of(record), past_runs=tuple(past[-_MAX_PAST_RUNS:]))
        if record.kind == BEGIN:
            return later
        # A FENCE has no figures of the batch.
        return replace(later, **{name: getattr(self, name) for name in _OF_BATCH})


_OF_BATCH = ("rows", "bytes", "content_bytes", "content", "version")


@dataclass
class _State:
    """Entries by key, from the records before `next`; `last` is the last one's offset or -1."""

    next: int
    last: int
    entries: dict[str, LedgerEntry]
    saved_next: int = 0

    def add(self, record: SinkRecord | None) -> None:
        """Add the next record of the log; None is a placeholder that `repair` wrote."""
        if record is None:
            _log.error(
                "publish record %d is damaged, and its query is not known: its batch is published"
                " again if the query repeats it",
                self.next,
            )
            self.next += 1
            return
        known = self.entries.get(record.key)
        self.entries[record.key] = known.after(record) if known else _entry_of(record)
        self.next, self.last = self.next + 1, record.offset

    def forget(self, now_ms: int) -> None:
        """Forget the queries whose last batch is too old to be repeated."""

        def is_old(entry: LedgerEntry) -> bool:
            is_once = entry.identity.startswith(ONCE)
            return now_ms - entry.time_ms > (_FORGET_ONCE_AFTER_MS if is_once else FORGET_AFTER_MS)

        self.entries = {key: entry for key, entry in self.entries.items() if not is_old(entry)}


class SinkLedger:
    """The ledger of one store; thread-safe. Reading takes no lock of the store."""

    def __init__(self, layout: Layout, reader: Reader, clock: Clock) -> None:
        self._file = _file(layout)
        self._reader, self._clock = reader, clock
        self._lock = Lock()
        self._known: _State | None = None

    def last(self, key: str) -> LedgerEntry | None:
        """Return the last batch of a query and target. Raises StoreDamagedError."""
        return self._read().entries.get(key)

    def newest(self, identity: str) -> LedgerEntry | None:
        """Return the last batch of a query with any target. Raises StoreDamagedError."""
        known = (entry for entry in self._read().entries.values() if entry.identity == identity)
        return max(known, key=lambda entry: entry.offset, default=None)

    def save_if_long(self) -> None:
        """Save the file if it lacks many records; the caller must hold the write lock."""
        state = self._read()
        if state.next - state.saved_next > LONG_TAIL:
            self._save(state)

    def save(self) -> None:
        """Save the file durably if it lacks records; the caller must hold the write lock."""
        state = self._read()
        if state.next != state.saved_next:
            self._save(state)

    def _save(self, state: _State) -> None:
        state.forget(self._clock())
        queries = {key: asdict(entry) for key, entry in sorted(state.entries.items())}
        content = {"next": state.next, "last": state.last, "queries": queries}
        self._file.save(content)
        state.saved_next = state.next

    def _read(self) -> _State:
        """Return the state after all records; only new records are read."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                with suppress(OffsetOutOfRangeError):  # Deleted by the cleaner in the meantime.
                    self._known = self._catch_up()
                    return self._known
            self._known = self._catch_up()
            return self._known

    def _catch_up(self) -> _State:
        queue = self._reader.system_offsets(SINK_TOPIC)
        first, end = queue.minimum, queue.maximum
        state = self._known
        # Records deleted in the meantime are only in the file.
        if state is None or state.next < first or not self._agrees(state, first, end):
            state = self._load(first, end)
        state.next = max(state.next, first)
        for record in self._records(state.next, end) if state.next < end else ():
            state.add(record)
        return state

    def _load(self, first: int, end: int) -> _State:
        """Return the state of the file, without parts that disagree with the log."""
        state = self._file.read() or _State(0, -1, {})
        if self._agrees(state, first, end):
            return state
        _log.warning(
            "%s does not match the log: it is used only for deleted messages", self._file.path
        )
        records = self._records(first, end) if first < end else ()
        begin = next((record.offset for record in records if record), 2**63 - 1)
        return _State(
            0, -1, {key: entry for key, entry in state.entries.items() if entry.offset < begin}
        )

    def _agrees(self, state: _State, first: int, end: int) -> bool:
        """Return whether the last known record is still at its log offset, or was deleted."""
        if state.next > end:
            return False
        if state.next <= first:
            return True
        record = next(self._records(state.next - 1, state.next))
        return record is None or record.offset == state.last

    def _records(self, start: int, end: int) -> Iterator[SinkRecord | None]:
        """Yield the publish records [start, end) of their queue; None for a placeholder."""
        try:
            for part in self._reader.records(SINK_TOPIC, 0, start, end):
                for record in decode_sink_records(part.records):
                    yield record
                    start += 1
        except RecordDamagedError as error:
            if PLACEHOLDER not in error.message:
                raise
            # The damaged record is somewhere in the slice, which cannot be read in parts.
            if end - start == 1:
                yield None
                return
            middle = (start + end) // 2
            yield from self._records(start, middle)
            yield from self._records(middle, end)


def check_ledger(layout: Layout) -> None:
    """Raise StoreDamagedError if the file cannot be read."""
    _file(layout).read()


def _file(layout: Layout) -> OwnFile[_State]:
    remedy = (
        "Restore it from a copy, or delete it: batches whose messages are still in the log stay"
        " known, but older batches could be published twice."
    )
    return OwnFile(layout.sink_ledger, layout.scratch, _parse, remedy)


def _parse(content: Any) -> _State:
    entries = {
        key: LedgerEntry(**{**value, "past_runs": tuple(value["past_runs"])})
        for key, value in content["queries"].items()
    }
    known = int(content["next"])
    return _State(known, int(content["last"]), entries, saved_next=known)


def _entry_of(record: SinkRecord) -> LedgerEntry:
    shared = {field.name for field in fields(LedgerEntry)} - {"past_runs"}
    return LedgerEntry(**{name: getattr(record, name) for name in shared})
