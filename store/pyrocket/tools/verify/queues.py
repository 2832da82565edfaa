"""Compares the queues with the log: each record needs an entry, and each entry a record.

Two messages in the log may have the same queue offset; the queue then has only the later message.
That is normal if a topic of the same name was deleted in between: a broker assigns the old offsets
again. In all other cases the queue was lost before the offset was assigned a second time.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Bools
from pyrocket.formats.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK_SIZE, Entries
from pyrocket.formats.record import FIXED_BYTES, HEADER, HEADER_BYTES, STORE_HOST, SYS_DAMAGED
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.queues.consume_queue import ConsumeQueue, QueueTable
from pyrocket.index.queues.dispatcher import QueuePart, queue_parts
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import DamagedRange
from pyrocket.tools.verify.delays import DelayCheck
from pyrocket.tools.verify.log import position_in
from pyrocket.tools.verify.metadata import Key
from pyrocket.tools.verify.report import Findings, Severity, repair

_REBUILD = repair("rebuilds the queue from the log.")
_STEP_OVER = repair("skips the damaged messages; only a backup of {} can restore them.")
_SEND_AGAIN = (
    "The log still has these messages, but no repair can put them back into the queue. Read them"
    " with Store.views (commitlog), and send them again if they are needed. Nothing has to be done"
    " if a RocketMQ broker has deleted the topic in between."
)
_TEXTS = {
    "LOG_QUEUE_OFFSET": "{count} messages have queue offsets that differ from their queue"
    " entries, the first at {at}.",
    "QUEUE_ENTRY_MISSING": "{count} messages of the log have no entry, the first at offset {at}.",
    "QUEUE_ENTRY_WRONG": "{count} entries do not point to their messages, the first at offset"
    " {at}.",
    "QUEUE_TAGS_WRONG": "{count} entries have tags codes that differ from their messages, the first"
    " at offset {at}.",
}


@dataclass
class _InLog:
    """The offsets [first, next) of one queue in the records read so far."""

    first: int
    next: int
    wrong: Counter[str] = field(default_factory=Counter)
    first_wrong: dict[str, int] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def add(self, code: str, at: int, count: int = 1) -> None:
        """Count an error at a queue offset (LOG_… codes: at a log offset)."""
        self.wrong[code] += count
        self.first_wrong.setdefault(code, at)

    def restart(self, offset: int) -> None:
        """Continue at an older offset: a broker has deleted and recreated the topic.

        But if the offset is later than the queue's first offset, the queue has lost its end.
        """
        if offset > self.first:
            if "QUEUE_SUPERSEDED" not in self.wrong:
                self.add("QUEUE_SUPERSEDED", offset, self.next - offset)
            self.next = offset
            return
        older = self.wrong.total()
        self.wrong.clear()
        self.first_wrong.clear()
        self.gaps.clear()
        self.add("QUEUE_SUPERSEDED", offset, max(older, 1))
        self.first = self.next = offset

    def extend(self, first: int, end: int) -> None:
        """Add records with the offsets [first, end)."""
        if first > self.next:
            self.gaps.append((self.next, first))
        self.next = max(self.next, end)


class QueueCheck:
    """Compares the queues with the log, run by run."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        ended_at: Callable[[str, int], int],
        delay_levels_ms: Sequence[int],
        delays: DelayCheck,
    ) -> None:
        self._log, self._queues, self._ended_at = log, queues, ended_at
        self._levels, self._delays = delay_levels_ms, delays
        self._seen: dict[Key, _InLog] = {}
        self.entries = 0

    def ends(self) -> dict[Key, int]:
        """Return the end of each queue that has messages in the log."""
        return {key: seen.next for key, seen in self._seen.items()}

    def feed(self, run: RecordFields) -> None:
        """Compare consecutive complete records with their entries."""
        for part in queue_parts(run, self._levels):
            first = int(part.offsets[0])
            seen = self._seen.setdefault((part.topic, part.queue_id), _InLog(first, first))
            self.entries += len(part.offsets)
            cuts = np.flatnonzero(np.diff(part.offsets) != 1) + 1
            for rows in np.split(np.arange(len(part.offsets)), cuts):
                dense = replace(part, offsets=part.offsets[rows], entries=part.entries[rows])
                stored = self._found(dense, int(dense.offsets[0]))
                self._feed_dense(self._delays.accept(run, dense, stored), stored, seen)

    def _feed_dense(self, part: QueuePart, found: Entries, seen: _InLog) -> None:
        first, count = int(part.offsets[0]), len(part.offsets)
        same = found == part.entries
        if (
            not same.any()
            and first != seen.next
            and (self._found(part, seen.next) == part.entries).all()
        ):
            seen.add("LOG_QUEUE_OFFSET", int(part.entries[0]["physical_offset"]), count)
            seen.extend(seen.next, seen.next + count)
            return
        if first < seen.next and same.any():
            seen.restart(first)
        else:
            self._compare(part, seen, found, ~same)
        seen.extend(first, first + count)

    def _found(self, part: QueuePart, first: int) -> Entries:
        """Return one entry per record of `part`, starting at `first`; missing entries are zero."""
        queue = self._queues.get(part.topic, part.queue_id)
        per_file = queue.run.file_bytes // ENTRY_BYTES
        entries = np.zeros(len(part.entries), ENTRY)
        at, end = first, first + len(entries)
        while at < end:
            file_end = at - at % per_file + per_file
            there = queue.entries(at, min(end, file_end))
            entries[at - first : at - first + len(there)] = there
            at = file_end
        return entries

    def _compare(self, part: QueuePart, seen: _InLog, found: Entries, differs: Bools) -> None:
        """Count the differences; messages of a deleted topic may lack entries."""
        blank = (found["size"] == 0) | (found["size"] == PRE_BLANK_SIZE)
        differs &= ~blank | (part.offsets >= self._ended_at(part.topic, part.queue_id))
        missing = np.flatnonzero(differs & (found["size"] == 0))
        if len(missing):
            seen.add("QUEUE_ENTRY_MISSING", int(part.offsets[missing[0]]), len(missing))
        for at in np.flatnonzero(differs & (found["size"] != 0)).tolist():
            offset = int(part.offsets[at])
            code = self._difference(part, offset, found[at], part.entries[at])
            if code:
                seen.add(code, offset)

    def _difference(self, part: QueuePart, offset: int, found: np.void, entry: np.void) -> str:
        if (found["physical_offset"], found["size"]) == (entry["physical_offset"], entry["size"]):
            # The entry of a damaged message still has the original tags code.
            return "" if self._is_placeholder(int(entry["physical_offset"])) else "QUEUE_TAGS_WRONG"
        is_later = int(found["physical_offset"]) > int(entry["physical_offset"])
        if is_later and self._is_of(part, offset, found):
            return "QUEUE_SUPERSEDED"
        return "QUEUE_ENTRY_WRONG"

    def _is_placeholder(self, position: int) -> bool:
        head = np.frombuffer(self._log.read(position, HEADER_BYTES), HEADER, 1)[0]
        return bool(head["sys_flag"] & SYS_DAMAGED)

    def _is_of(self, part: QueuePart, offset: int, entry: np.void) -> bool:
        """Whether the entry points to another message with the same queue and offset."""
        record = _record_of(self._log, entry)
        if record is None:
            return False
        key = record.topic, record.queue_id, record.queue_offset
        return key == (part.topic, part.queue_id, offset)

    def report(
        self,
        findings: Findings,
        damaged: Collection[DamagedRange],
        *,
        log_start: int,
        log_end: int,
        live: bool,
    ) -> None:
        """Report all errors; in a `live` store, entries beyond the log's end are valid."""
        self._delays.report(findings)
        for key, seen in self._seen.items():
            self._report_wrong(findings, key, seen)
        ranges = sorted((part.start, part.end) for part in damaged)
        for key in self._queues.on_disk():
            queue = self._queues.get(*key)
            unmatched = _Unmatched(ranges, log_start, log_end, live=live)
            unmatched.collect(queue, self._seen.get(key))
            self.entries += unmatched.entries
            unmatched.report(findings, queue, self._log.run)

    def _report_wrong(self, findings: Findings, key: Key, seen: _InLog) -> None:
        queue = self._queues.get(*key)
        again = seen.first_wrong.get("QUEUE_SUPERSEDED")
        twice = again is not None and not self._had_earlier_life(key, again)
        for code, count in seen.wrong.items():
            at = seen.first_wrong[code]
            if code == "QUEUE_SUPERSEDED":
                _report_superseded(findings, queue, at, count, twice=twice)
                continue
            if code == "LOG_QUEUE_OFFSET":
                file, position = position_in(self._log.run, at)
                fix = _STEP_OVER.format(file)
            else:
                file, position = entry_position(queue, at)
                fix = _SEND_AGAIN if twice else _REBUILD
            what = _TEXTS[code].format(count=count, at=at)
            findings.add(code, Severity.ERROR, file, what, fix, position)
        for low, high in seen.gaps:
            file, position = entry_position(queue, low)
            what = f"the log has no complete messages for the offsets {low} to {high - 1}."
            fix = _STEP_OVER.format("the log")
            findings.add("LOG_QUEUE_GAP", Severity.ERROR, file, what, fix, position)

    def _had_earlier_life(self, key: Key, again: int) -> bool:
        ended = self._ended_at(*key)
        return again < ended or _is_from_a_broker(self._log, self._queues.get(*key), again)


def _report_superseded(
    findings: Findings, queue: ConsumeQueue, at: int, count: int, *, twice: bool
) -> None:
    """Report `count` messages whose offsets, starting at `at`, were assigned a second time."""
    file, position = entry_position(queue, at)
    if twice:
        what = f"{count} messages are not in a queue: offsets starting at {at} were assigned twice."
        findings.add("QUEUE_OFFSETS_TWICE", Severity.ERROR, file, what, _SEND_AGAIN, position)
        return
    what = f"{count} messages before offset {at} belong to an older topic of this name."
    fix = "Nothing has to be done."
    findings.add("QUEUE_SUPERSEDED", Severity.NOTE, file, what, fix, position)


class _Unmatched:
    """Entries of one queue that point to no complete record of the log."""

    def __init__(
        self, damaged: Sequence[tuple[int, int]], log_start: int, log_end: int, *, live: bool
    ) -> None:
        self._damaged, self._live = damaged, live
        self._log_start, self._log_end = log_start, log_end
        self.entries = self._next = 0
        self._lost: list[tuple[int, int]] = []
        self._stray: list[int] = []
        self._ahead: list[int] = []

    def collect(self, queue: ConsumeQueue, in_log: _InLog | None) -> None:
        """Classify the entries outside the offsets of the log's records."""
        per_file = queue.run.file_bytes // ENTRY_BYTES
        first, self._next = (in_log.first, in_log.next) if in_log else (0, 0)
        for start in queue.run.starts():
            low = start // ENTRY_BYTES
            for begin, end in (
                (low, min(low + per_file, first)),
                (max(low, self._next), low + per_file),
            ):
                if begin < end:
                    self._classify(begin, queue.entries(begin, end))
        for begin, end in in_log.gaps if in_log else ():
            self._classify(begin, queue.entries(begin, end))

    def _classify(self, begin: int, entries: Entries) -> None:
        positions, sizes = (entries[name].astype(np.int64) for name in ("physical_offset", "size"))
        used = (sizes != 0) & (sizes != PRE_BLANK_SIZE)
        cleaned = (positions >= 0) & (positions + sizes <= self._log_start)
        for at in np.flatnonzero(used & ~cleaned).tolist():
            position, offset = int(positions[at]), begin + at
            self.entries += 1
            if position >= self._log_end and offset >= self._next:
                self._ahead.append(offset)
            elif any(start <= position < end for start, end in self._damaged):
                self._lost.append((offset, position))
            else:
                self._stray.append(offset)

    def report(self, findings: Findings, queue: ConsumeQueue, log: FileQueue) -> None:
        if self._lost:
            offset, position = self._lost[0]
            what = f"{len(self._lost)} messages cannot be read, the first at offset {offset}."
            fix = _STEP_OVER.format(position_in(log, position)[0])
            file, at = entry_position(queue, offset)
            findings.add("MESSAGES_LOST", Severity.ERROR, file, what, fix, at)
        if self._stray:
            what = f"{len(self._stray)} entries point to no message, the first at offset"
            file, at = entry_position(queue, self._stray[0])
            what = f"{what} {self._stray[0]}."
            findings.add("QUEUE_ENTRY_STRAY", Severity.ERROR, file, what, _REBUILD, at)
        if self._ahead and not self._live:
            what = f"{len(self._ahead)} entries point beyond the end of the log, the first at"
            file, at = entry_position(queue, self._ahead[0])
            what = f"{what} offset {self._ahead[0]}."
            findings.add("QUEUE_AHEAD", Severity.WARNING, file, what, _REBUILD, at)


def entry_position(queue: ConsumeQueue, offset: int) -> tuple[str, int]:
    """Return the file of a queue entry, relative to the store, and the position in it."""
    position = offset * ENTRY_BYTES
    start = queue.run.start_of(position)
    folder = f"consumequeue/{queue.topic}/{queue.queue_id}"
    return f"{folder}/{file_name(start)}", position - start


def _is_from_a_broker(log: CommitLog, queue: ConsumeQueue, offset: int) -> bool:
    """Whether a RocketMQ broker stored the message at a queue offset."""
    records = (_record_of(log, entry) for entry in queue.entries(offset, offset + 1))
    return any(record is not None and record.store_host != STORE_HOST for record in records)


def _record_of(log: CommitLog, entry: np.void) -> Record | None:
    """Return the record to which a queue entry points, or None."""
    position, size = int(entry["physical_offset"]), int(entry["size"])
    if position < 0 or not FIXED_BYTES <= size <= log.file_bytes:
        return None
    try:
        return decode_record(log.read(position, size), verify_crc=False)
    except (StoreDamagedError, OSError):
        return None
