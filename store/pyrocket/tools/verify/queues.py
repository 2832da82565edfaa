"""Log and queues agree: each record has its entry, and each entry its record."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pyrocket.disk.layout import file_name
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK_SIZE, Entries
from pyrocket.formats.record import FIXED_BYTES, HEADER, HEADER_BYTES, STORE_HOST, SYS_DAMAGED
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import Bools, RecordFields
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.dispatcher import QueuePart, queue_parts
from pyrocket.index.queues.queue_table import QueueTable
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import DamagedRange
from pyrocket.tools.verify.delays import DelayCheck
from pyrocket.tools.verify.finding import Findings, Severity, repair

Key = tuple[str, int]
_REBUILD = repair("rebuilds the queue from the log.")
_STEP_OVER = repair("steps over the damaged messages; they can only come from a backup of {}.")


@dataclass
class _Seen:
    """What the log says about one queue so far: its offsets go from `first` to `next`."""

    first: int
    next: int
    wrong: Counter[str] = field(default_factory=Counter)
    first_wrong: dict[str, int] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def note(self, code: str, at: int, count: int = 1) -> None:
        """Count something wrong at a queue offset (for LOG_…: at a log offset)."""
        self.wrong[code] += count
        self.first_wrong.setdefault(code, at)

    def restart(self, offset: int) -> None:
        """Begin again: a broker has deleted the topic and made it anew, at old offsets.

        Offsets in the middle that come again mean that the queue had lost its end.
        """
        if offset > self.first:
            if "QUEUE_SUPERSEDED" not in self.wrong:
                self.note("QUEUE_SUPERSEDED", offset, self.next - offset)
            self.next = offset
            return
        older = self.wrong.total()
        self.wrong.clear()
        self.first_wrong.clear()
        self.gaps.clear()
        self.note("QUEUE_SUPERSEDED", offset, max(older, 1))
        self.first = self.next = offset

    def go_on(self, first: int, end: int) -> None:
        """Take note of records with the offsets [first, end)."""
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
        self._seen: dict[Key, _Seen] = {}
        self.entries = 0

    def ends(self) -> dict[Key, int]:
        """Return where the queues end of which the log has messages."""
        return {key: seen.next for key, seen in self._seen.items()}

    def feed(self, run: RecordFields) -> None:
        """Compare the records of a run, all of them whole, with their entries."""
        for part in queue_parts(run, self._levels):
            first = int(part.offsets[0])
            seen = self._seen.setdefault((part.topic, part.queue_id), _Seen(first, first))
            self.entries += len(part.offsets)
            cuts = np.flatnonzero(np.diff(part.offsets) != 1) + 1
            for rows in np.split(np.arange(len(part.offsets)), cuts):
                dense = replace(part, offsets=part.offsets[rows], entries=part.entries[rows])
                found = self._found(dense, int(dense.offsets[0]))
                self._feed_dense(self._delays.adopt(run, dense, found), found, seen)

    def _feed_dense(self, part: QueuePart, found: Entries, seen: _Seen) -> None:
        first, count = int(part.offsets[0]), len(part.offsets)
        same = found == part.entries
        if (
            not same.any()
            and first != seen.next
            and (self._found(part, seen.next) == part.entries).all()
        ):
            seen.note("LOG_QUEUE_OFFSET", int(part.entries[0]["physical_offset"]), count)
            seen.go_on(seen.next, seen.next + count)
            return
        if first < seen.next and same.any():
            seen.restart(first)
        else:
            self._compare(part, seen, found, ~same)
        seen.go_on(first, first + count)

    def _found(self, part: QueuePart, first: int) -> Entries:
        """Return as many entries as the part has; zeros where there are none, or no file."""
        queue = self._queues.get(part.topic, part.queue_id)
        per_file = queue.run.file_bytes // ENTRY_BYTES
        found = np.zeros(len(part.entries), ENTRY)
        at, end = first, first + len(found)
        while at < end:
            file_end = at - at % per_file + per_file
            there = queue.entries(at, min(end, file_end))
            found[at - first : at - first + len(there)] = there
            at = file_end
        return found

    def _compare(self, part: QueuePart, seen: _Seen, found: Entries, differs: Bools) -> None:
        """Count the differences; of a deleted topic's messages there need not be entries."""
        blank = (found["size"] == 0) | (found["size"] == PRE_BLANK_SIZE)
        differs &= ~blank | (part.offsets >= self._ended_at(part.topic, part.queue_id))
        missing = np.flatnonzero(differs & (found["size"] == 0))
        if len(missing):
            seen.note("QUEUE_ENTRY_MISSING", int(part.offsets[missing[0]]), len(missing))
        for at in np.flatnonzero(differs & (found["size"] != 0)).tolist():
            offset = int(part.offsets[at])
            code = self._difference(part, offset, found[at], part.entries[at])
            if code:
                seen.note(code, offset)

    def _difference(self, part: QueuePart, offset: int, found: np.void, entry: np.void) -> str:
        if (found["physical_offset"], found["size"]) == (entry["physical_offset"], entry["size"]):
            # The entry of a damaged message still has the tags code that the message had.
            return "" if self._is_placeholder(int(entry["physical_offset"])) else "QUEUE_TAGS_WRONG"
        is_later = int(found["physical_offset"]) > int(entry["physical_offset"])
        if is_later and self._is_of(part, offset, found):
            return "QUEUE_SUPERSEDED"
        return "QUEUE_ENTRY_WRONG"

    def _is_placeholder(self, place: int) -> bool:
        head = np.frombuffer(self._log.read(place, HEADER_BYTES), HEADER, 1)[0]
        return bool(head["sys_flag"] & SYS_DAMAGED)

    def _is_of(self, part: QueuePart, offset: int, entry: np.void) -> bool:
        """Whether the entry points to a message of the same queue and offset all the same."""
        where, size = int(entry["physical_offset"]), int(entry["size"])
        if where < 0 or not FIXED_BYTES <= size <= self._log.file_bytes:
            return False
        try:
            record = decode_record(self._log.read(where, size), verify_crc=False)
        except (StoreDamagedError, OSError):
            return False
        key = record.topic, record.queue_id, record.queue_offset
        return key == (part.topic, part.queue_id, offset)

    def report(
        self,
        findings: Findings,
        bad: Collection[DamagedRange],
        *,
        log_start: int,
        log_end: int,
        live: bool,
    ) -> None:
        """Add what is wrong with the queues; `live`, entries behind the log's end are new."""
        self._delays.report(findings)
        for key, seen in self._seen.items():
            self._report_wrong(findings, key, seen)
        places = sorted((place.start, place.end) for place in bad)
        for key in self._queues.on_disk():
            queue, known = self._queues.get(*key), self._seen.get(key)
            alone = _Alone(places, log_start, log_end, live, self._log.run.start_of)
            alone.look(queue, known)
            self.entries += alone.entries
            alone.report(findings, queue, _REBUILD)

    def _report_wrong(self, findings: Findings, key: Key, seen: _Seen) -> None:
        queue = self._queues.get(*key)
        again = seen.first_wrong.get("QUEUE_SUPERSEDED")
        twice = again is not None and not self._had_earlier_life(key, again)
        for code, count in seen.wrong.items():
            at = seen.first_wrong[code]
            file, position = place_of(queue, at) if code in _TEXTS else self._place_in_log(at)
            if code == "QUEUE_SUPERSEDED":
                report_superseded(findings, file, position, at, count, twice=twice)
                continue
            what = (_TEXTS.get(code) or _IN_LOG).format(count=count, at=at)
            step_over = _STEP_OVER.format(file)
            way = (GIVEN_TWICE if twice else _REBUILD) if code in _TEXTS else step_over
            findings.add(code, Severity.ERROR, file, what, way, position)
        for low, high in seen.gaps:
            file, position = place_of(queue, low)
            what = f"the log has no whole messages for the offsets {low} to {high - 1}."
            fix = _STEP_OVER.format("the log")
            findings.add("LOG_QUEUE_GAP", Severity.ERROR, file, what, fix, position)

    def _had_earlier_life(self, key: Key, again: int) -> bool:
        ended = self._ended_at(*key)
        return again < ended or is_of_a_broker(self._log, self._queues.get(*key), again)

    def _place_in_log(self, offset: int) -> tuple[str, int]:
        start = self._log.run.start_of(offset)
        return f"commitlog/{file_name(start)}", offset - start


_IN_LOG = (
    "{count} messages name another queue offset than the queue has for them, the first at {at}."
)
_TEXTS = {
    "QUEUE_ENTRY_MISSING": "{count} messages of the log have no entry, the first at offset {at}.",
    "QUEUE_ENTRY_WRONG": "{count} entries point elsewhere than to their messages, the first at"
    " offset {at}.",
    "QUEUE_TAGS_WRONG": "{count} entries have another tags code than their messages, the first at"
    " offset {at}.",
    "QUEUE_SUPERSEDED": "",
}


class _Alone:
    """Entries of one queue that belong to no whole record."""

    def __init__(
        self,
        bad: list[tuple[int, int]],
        log_start: int,
        log_end: int,
        live: bool,
        start_of: Callable[[int], int],
    ) -> None:
        self._start_of = start_of
        self._bad, self._log_start, self._log_end, self._live = bad, log_start, log_end, live
        self.entries = self._after = 0
        self._lost: list[tuple[int, int]] = []
        self._stray: list[int] = []
        self._ahead: list[int] = []

    def look(self, queue: ConsumeQueue, seen: _Seen | None) -> None:
        """Look at all entries that the log has not accounted for."""
        per_file = queue.run.file_bytes // ENTRY_BYTES
        first, self._after = (seen.first, seen.next) if seen else (0, 0)
        for start in queue.run.starts():
            low = start // ENTRY_BYTES
            for begin, end in (
                (low, min(low + per_file, first)),
                (max(low, self._after), low + per_file),
            ):
                if begin < end:
                    self._judge(begin, queue.entries(begin, end))
        for begin, end in seen.gaps if seen else ():
            self._judge(begin, queue.entries(begin, end))

    def _judge(self, begin: int, entries: Entries) -> None:
        where, sizes = (entries[name].astype(np.int64) for name in ("physical_offset", "size"))
        used = (sizes != 0) & (sizes != PRE_BLANK_SIZE)
        cleaned = (where >= 0) & (where + sizes <= self._log_start)
        for at in np.flatnonzero(used & ~cleaned).tolist():
            place, offset = int(where[at]), begin + at
            self.entries += 1
            if place >= self._log_end and offset >= self._after:
                self._ahead.append(offset)
            elif any(start <= place < end for start, end in self._bad):
                self._lost.append((offset, place))
            else:
                self._stray.append(offset)

    def report(self, findings: Findings, queue: ConsumeQueue, fix: str) -> None:
        """Add what was found."""
        if self._lost:
            offset, place = self._lost[0]
            log_file = f"commitlog/{file_name(self._start_of(place))}"
            what = f"{len(self._lost)} messages cannot be read, the first at offset {offset}."
            file, at = place_of(queue, offset)
            fix = _STEP_OVER.format(log_file)
            findings.add("MESSAGES_LOST", Severity.ERROR, file, what, fix, at)
        if self._stray:
            what = f"{len(self._stray)} entries point to no message, the first at offset"
            file, at = place_of(queue, self._stray[0])
            what = f"{what} {self._stray[0]}."
            findings.add("QUEUE_ENTRY_STRAY", Severity.ERROR, file, what, fix, at)
        if self._ahead and not self._live:
            what = (
                f"{len(self._ahead)} entries point behind the end of the log, the first at offset"
            )
            file, at = place_of(queue, self._ahead[0])
            what = f"{what} {self._ahead[0]}."
            findings.add("QUEUE_AHEAD", Severity.WARNING, file, what, fix, at)


def place_of(queue: ConsumeQueue, offset: int) -> tuple[str, int]:
    """Return the file, relative to the store, and the byte in it of a queue's entry."""
    position = offset * ENTRY_BYTES
    start = queue.run.start_of(position)
    folder = f"consumequeue/{queue.topic}/{queue.queue_id}"
    return f"{folder}/{file_name(start)}", position - start


GIVEN_TWICE = (
    "The log still has them: read them as Store.views shows it (commitlog), and send again what is"
    " missed. No repair brings them back into the queue. Where a RocketMQ broker has deleted the"
    " topic in between, nothing has to be done."
)


def report_superseded(
    findings: Findings, file: str, position: int, at: int, count: int, *, twice: bool
) -> None:
    """Add that later messages have the offsets, from `at` on, of `count` others."""
    if twice:
        what = f"{count} messages are in no queue: offsets from {at} on were given twice."
        findings.add("QUEUE_OFFSETS_TWICE", Severity.ERROR, file, what, GIVEN_TWICE, position)
        return
    what = f"{count} messages before offset {at} are of an older topic of this name."
    fix = "Nothing has to be done."
    findings.add("QUEUE_SUPERSEDED", Severity.NOTE, file, what, fix, position)


def is_of_a_broker(log: CommitLog, queue: ConsumeQueue, offset: int) -> bool:
    """Whether a RocketMQ broker has stored the message that the queue has at an offset."""
    for entry in queue.entries(offset, offset + 1):
        place, size = int(entry["physical_offset"]), int(entry["size"])
        if place < 0 or not 0 < size <= log.file_bytes:
            return False
        try:
            return decode_record(log.read(place, size), verify_crc=False).store_host != STORE_HOST
        except (StoreDamagedError, OSError):
            return False
    return False
