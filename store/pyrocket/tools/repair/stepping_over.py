"""What lay in the damaged places of a log, and placeholders over them.

Which messages were there is learnt from the queues' entries, which point to them, and from gaps in
the queue offsets that the log has. Each gets a placeholder of its own, in exactly its place where
an entry tells it. Only bytes that hold no whole record are changed, or a record under a wrong name
(no checksum covers topic, queue and queue offset). A repair that is killed is simply done again.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.placeholder import LostMessage, encode_placeholder, min_bytes
from pyrocket.formats.record import BLANK_BYTES, FIXED_BYTES, encode_blank
from pyrocket.formats.record_crc import CRC_BYTES
from pyrocket.formats.record_decode import decode_record, read_store_timestamp
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.queues.density import SYS_INNER_BATCH
from pyrocket.index.queues.dispatcher import queue_rows
from pyrocket.index.queues.queue_table import QueueTable
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import LogCheck

_log = logging.getLogger(__name__)

_HEAD_BYTES = 96
_MAX_BYTES = 1 << 20
"""Of a placeholder for no known message: every scanner reads records whole."""

Key = tuple[str, int]


@dataclass(frozen=True)
class Piece:
    """[start, end) of the log, and which message was there; None where that is not known."""

    start: int
    end: int
    lost: LostMessage | None


@dataclass(frozen=True)
class _Jump:
    """A message that the log lacks; it lay between the log offsets `low` and `high`."""

    lost: LostMessage
    low: int
    high: int


class DamagedLog:
    """One pass over a damaged log: its bad places, and which messages were there."""

    def __init__(self, log: CommitLog, queues: QueueTable) -> None:
        self._log, self._queues = log, queues
        self._next: dict[Key, tuple[int, int]] = {}
        self._jumps: list[_Jump] = []
        self._renamed: list[Piece] = []
        check = LogCheck(log, lambda count, name: None, end_is_known=False)
        starts = log.run.starts()
        for run in check.runs(log.first_offset(), starts[-1] + log.file_bytes if starts else 0):
            self._follow(run)
        self._last_stored = check.last_stored
        bad = [(one.start, one.end) for one in check.bad if one.start < check.end]
        self._renamed += [piece for jump in self._jumps if (piece := self._renamed_at(jump, bad))]
        bad += [(one.start, one.end) for one in self._renamed]
        self.places = list(self._in_one_file(sorted(bad)))
        self.unindexed: set[Key] = set()

    def _follow(self, run: RecordFields) -> None:
        """Look where the offsets of each queue jump."""
        for queue, rows in queue_rows(run):
            if (run.sys_flag[rows] & SYS_INNER_BATCH).any():
                self._next.pop(queue, None)
                continue
            offsets, places = run.queue_offset[rows], run.physical_offset[rows]
            following, low = self._next.get(queue, (int(offsets[0]), self._log.first_offset()))
            expected, lows = np.append(following, offsets[:-1] + 1), np.append(low, places[:-1])
            for at in np.flatnonzero(offsets != expected).tolist():
                first, place = int(expected[at]), int(places[at])
                if self._entry(queue, first) == (place, place + int(run.sizes[rows[at]])):
                    end = place + int(run.sizes[rows[at]])
                    self._renamed.append(Piece(place, end, LostMessage(*queue, first)))
                    continue
                low = int(lows[at])
                if int(offsets[at]) - first > (place - low) // FIXED_BYTES:
                    continue  # There was no room for so many.
                for offset in range(first, int(offsets[at])):
                    self._jumps.append(_Jump(LostMessage(*queue, offset), low, place))
            self._next[queue] = int(offsets[-1]) + 1, int(places[-1])

    def _renamed_at(self, jump: _Jump, bad: list[tuple[int, int]]) -> Piece | None:
        """Return the record of a missing message that names another topic or queue, if there is
        one: the queue has an entry for it, and the queue that it names has none.
        """
        lost = jump.lost
        entry = self._entry((lost.topic, lost.queue_id), lost.queue_offset)
        if entry is None or not jump.low < entry[0] < jump.high or _overlap(bad, *entry):
            return None
        try:
            record = decode_record(self._log.read(entry[0], entry[1] - entry[0]))
        except StoreDamagedError:
            return None
        own = self._entry((record.topic, record.queue_id), record.queue_offset)
        return Piece(*entry, lost) if own != entry and record.size == entry[1] - entry[0] else None

    def _entry(self, queue: Key, offset: int) -> tuple[int, int] | None:
        """Return where the message lies to which an entry points."""
        for entry in self._queues.get(*queue).entries(offset, offset + 1):
            place, size = int(entry["physical_offset"]), int(entry["size"])
            return (place, place + size) if size > 0 else None
        return None

    def _in_one_file(self, places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield the places, joined where they touch, cut where a file ends."""
        joined: list[tuple[int, int]] = []
        for start, end in places:
            if joined and start <= joined[-1][1]:
                start, end = joined[-1][0], max(end, joined.pop()[1])
            joined.append((start, end))
        for start, end in joined:
            for first in range(self._log.run.start_of(start), end, self._log.file_bytes):
                yield max(start, first), min(end, first + self._log.file_bytes)

    def pieces(self) -> list[Piece]:
        """Return what to write over the bad places; the queues that lack entries: `unindexed`."""
        known = {place: self._indexed(*place) for place in self.places}
        placed = {piece.lost for pieces in known.values() for piece in pieces}
        jumps = [jump for jump in self._jumps if jump.lost not in placed]
        self.unindexed = {(jump.lost.topic, jump.lost.queue_id) for jump in jumps}
        pieces: list[Piece] = []
        for place in self.places:
            # Where a damaged place reaches into the next file, so do the messages.
            here = [jump.lost for jump in jumps if _overlap([place], jump.low, jump.high)]
            made = self._filled(*place, known[place], here)
            placed |= {piece.lost for piece in made}
            jumps = [jump for jump in jumps if jump.lost not in placed]
            pieces += made
        return pieces

    def _indexed(self, start: int, end: int) -> list[Piece]:
        """Return the messages in [start, end) to which entries of queues point, in order."""
        found = [piece for piece in self._renamed if start <= piece.start < end]
        for key in self._queues.on_disk():
            offset = self._queues.get(*key).max_offset(start)
            while (entry := self._entry(key, offset)) and start <= entry[0] < end:
                lost = LostMessage(*key, offset)
                if entry[1] <= end and entry[1] - entry[0] >= min_bytes(lost):
                    found.append(Piece(*entry, lost))
                offset += 1
        apart: list[Piece] = []
        for piece in sorted(found, key=lambda one: one.start):
            if not apart or apart[-1].end <= piece.start:
                apart.append(piece)
        return apart

    def _filled(
        self, start: int, end: int, known: list[Piece], waiting: list[LostMessage]
    ) -> list[Piece]:
        """Return pieces that cover [start, end): the known ones, and what is between them."""
        pieces: list[Piece] = []
        for piece in [*known, Piece(end, end, None)]:
            start = self._fill(pieces, start, piece.start, waiting)
            if piece.start < piece.end:
                pieces.append(replace(piece, start=start))
                start = piece.end
        if start < end:
            _log.warning("%d bytes at log offset %d are too few for a record", end - start, start)
            return []
        return pieces

    def _fill(self, pieces: list[Piece], start: int, end: int, waiting: list[LostMessage]) -> int:
        """Add pieces for [start, end), of which no queue knows anything; return how far they go."""
        ends_file = end == self._log.file_end(start)
        room = end - BLANK_BYTES if ends_file else end
        # Where records must have a checksum of their own, there was room for it.
        is_sealed = bool(self._log.sealed().cover(np.array([start]))[0])
        seal, least = (CRC_BYTES if is_sealed else 0), min_bytes(None) + CRC_BYTES
        while waiting and start + min_bytes(waiting[0]) + seal <= room:
            lost = waiting.pop(0)
            pieces.append(Piece(start, start + min_bytes(lost) + seal, lost))
            start = pieces[-1].end
        if ends_file:
            pieces.append(Piece(start, end, None))
            return end
        while end - start >= least:
            reach = start + _MAX_BYTES
            stop = end if end - reach < least else reach
            pieces.append(Piece(start, stop, None))
            start = stop
        if start < end and pieces:  # Too few for a record of their own.
            pieces[-1] = replace(pieces[-1], end=end)
            start = end
        return start

    def step_over(self, pieces: list[Piece]) -> None:
        """Write the pieces, durably. A reader that has the damaged bytes mapped may see both."""
        stored = self._last_stored
        for piece in sorted(pieces, key=lambda one: one.start, reverse=True):
            if not _overlap(self.places, piece.end, piece.end + 1):
                stored = read_store_timestamp(self._log.read(piece.end, _HEAD_BYTES)) or stored
            size = piece.end - piece.start
            if piece.end == self._log.file_end(piece.start):
                self._log.run.write(piece.start, encode_blank(size))
            else:
                damaged = self._log.read(piece.start, size)
                record = encode_placeholder(damaged, piece.start, piece.lost, stored)
                self._log.run.write(piece.start, record)
            self._log.run.sync(piece.start, piece.end)


def _overlap(places: list[tuple[int, int]], start: int, end: int) -> bool:
    return any(low < end and start < high for low, high in places)
