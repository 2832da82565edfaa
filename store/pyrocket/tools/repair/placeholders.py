"""Writes placeholders over the damaged ranges of a log, one for each lost message.

The lost messages are found by the queue entries that point to them, and by gaps in the queue
offsets of the log's records. If a message has an entry, its placeholder has exactly the position
and size of the message. Only two kinds of bytes are overwritten: bytes that do not belong to a
complete record, and records with a wrong topic, queue or queue offset, which no checksum covers. A
killed repair can be run again.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.placeholder import LostMessage, encode_placeholder, min_bytes
from pyrocket.formats.record import BLANK_BYTES, FIXED_BYTES, encode_blank
from pyrocket.formats.record_crc import CRC_BYTES
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.index.queues.rebuild import SYS_INNER_BATCH
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import LogCheck

_log = logging.getLogger(__name__)

_MAX_BYTES = 1 << 20
"""Size limit of a placeholder that replaces no known message: readers load complete records."""

_Key = tuple[str, int]


@dataclass(frozen=True)
class Piece:
    """A range [start, end) of the log, and the message lost there (None if it is unknown)."""

    start: int
    end: int
    lost: LostMessage | None


@dataclass(frozen=True)
class _Gap:
    """A lost message, which was stored between the log offsets `low` and `high`."""

    lost: LostMessage
    low: int
    high: int


class DamagedLog:
    """One pass over a damaged log, which finds the damaged ranges and the lost messages."""

    def __init__(self, log: CommitLog, queues: QueueTable) -> None:
        self._log, self._queues = log, queues
        self._next: dict[_Key, tuple[int, int]] = {}
        self._gaps: list[_Gap] = []
        self._renamed: list[Piece] = []
        check = LogCheck(log, lambda count, name: None, end_is_known=False)
        starts = log.run.starts()
        for run in check.runs(log.first_offset(), starts[-1] + log.file_bytes if starts else 0):
            self._find_gaps(run)
        self._last_stored = check.last_stored
        bad = [(damage.start, damage.end) for damage in check.bad if damage.start < check.end]
        self._renamed += [piece for gap in self._gaps if (piece := self._renamed_at(gap, bad))]
        bad += [(renamed.start, renamed.end) for renamed in self._renamed]
        self.ranges = list(self._in_one_file(sorted(bad)))
        self.unindexed: set[_Key] = set()

    def _find_gaps(self, run: RecordFields) -> None:
        """Find gaps in the offsets of each queue."""
        for queue, rows in run.by_queue:
            if (run.sys_flag[rows] & SYS_INNER_BATCH).any():
                self._next.pop(queue, None)
                continue
            offsets, positions = run.queue_offset[rows], run.physical_offset[rows]
            following, low = self._next.get(queue, (int(offsets[0]), self._log.first_offset()))
            expected, lows = np.append(following, offsets[:-1] + 1), np.append(low, positions[:-1])
            for at in np.flatnonzero(offsets != expected).tolist():
                first, position = int(expected[at]), int(positions[at])
                if self._entry(queue, first) == (position, position + int(run.sizes[rows[at]])):
                    end = position + int(run.sizes[rows[at]])
                    self._renamed.append(Piece(position, end, LostMessage(*queue, first)))
                    continue
                low = int(lows[at])
                if int(offsets[at]) - first > (position - low) // FIXED_BYTES:
                    continue  # More messages are missing than fit into the range.
                for offset in range(first, int(offsets[at])):
                    self._gaps.append(_Gap(LostMessage(*queue, offset), low, position))
            self._next[queue] = int(offsets[-1]) + 1, int(positions[-1])

    def _renamed_at(self, gap: _Gap, bad: list[tuple[int, int]]) -> Piece | None:
        """Return the record of a missing message if the log has it with another topic or queue.

        The queue of the missing message has an entry for the record; the queue that the record
        names has none.
        """
        lost = gap.lost
        entry = self._entry((lost.topic, lost.queue_id), lost.queue_offset)
        if entry is None or not gap.low < entry[0] < gap.high or _overlap(bad, *entry):
            return None
        try:
            record = decode_record(self._log.read(entry[0], entry[1] - entry[0]))
        except StoreDamagedError:
            return None
        own = self._entry((record.topic, record.queue_id), record.queue_offset)
        return Piece(*entry, lost) if own != entry and record.size == entry[1] - entry[0] else None

    def _entry(self, queue: _Key, offset: int) -> tuple[int, int] | None:
        """Return the log range [start, end) that an entry points to, or None."""
        for entry in self._queues.get(*queue).entries(offset, offset + 1):
            position, size = int(entry["physical_offset"]), int(entry["size"])
            return (position, position + size) if size > 0 else None
        return None

    def _in_one_file(self, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield the ranges: adjacent ones are joined, then all are split at the ends of files."""
        joined: list[tuple[int, int]] = []
        for start, end in ranges:
            if joined and start <= joined[-1][1]:
                start, end = joined[-1][0], max(end, joined.pop()[1])
            joined.append((start, end))
        for start, end in joined:
            for first in range(self._log.run.start_of(start), end, self._log.file_bytes):
                yield max(start, first), min(end, first + self._log.file_bytes)

    def pieces(self) -> list[Piece]:
        """Return the placeholders to write, and set `unindexed` to the queues to rebuild."""
        known = {damaged: self._indexed(*damaged) for damaged in self.ranges}
        placed = {piece.lost for pieces in known.values() for piece in pieces}
        gaps = [gap for gap in self._gaps if gap.lost not in placed]
        self.unindexed = {(gap.lost.topic, gap.lost.queue_id) for gap in gaps}
        pieces: list[Piece] = []
        for damaged in self.ranges:
            # `ranges` has one part per file of a damaged range; a message may be in either part.
            here = [gap.lost for gap in gaps if _overlap([damaged], gap.low, gap.high)]
            made = self._filled(*damaged, known[damaged], here)
            placed |= {piece.lost for piece in made}
            gaps = [gap for gap in gaps if gap.lost not in placed]
            pieces += made
        return pieces

    def _indexed(self, start: int, end: int) -> list[Piece]:
        """Return the messages in [start, end) that queue entries point to, in order."""
        pieces = [piece for piece in self._renamed if start <= piece.start < end]
        for key in self._queues.on_disk():
            offset = self._queues.get(*key).max_offset(start)
            while (entry := self._entry(key, offset)) and start <= entry[0] < end:
                lost = LostMessage(*key, offset)
                if entry[1] <= end and entry[1] - entry[0] >= min_bytes(lost):
                    pieces.append(Piece(*entry, lost))
                offset += 1
        apart: list[Piece] = []
        for piece in sorted(pieces, key=lambda part: part.start):
            if not apart or apart[-1].end <= piece.start:
                apart.append(piece)
        return apart

    def _filled(
        self, start: int, end: int, known: list[Piece], waiting: list[LostMessage]
    ) -> list[Piece]:
        """Return pieces that cover [start, end): the known pieces, and fillers between them."""
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
        """Add pieces for [start, end), to which no entry points; return the last piece's end."""
        ends_file = end == self._log.file_end(start)
        room = end - BLANK_BYTES if ends_file else end
        # Records in sealed ranges end with a checksum.
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
        if start < end and pieces:  # Too few bytes for another record.
            pieces[-1] = replace(pieces[-1], end=end)
            start = end
        return start

    def step_over(self, pieces: list[Piece]) -> None:
        """Write the placeholders durably.

        A reader that has mapped the damaged bytes may see either the old or the new content.
        """
        stored = self._last_stored
        for piece in sorted(pieces, key=lambda part: part.start, reverse=True):
            if not _overlap(self.ranges, piece.end, piece.end + 1):
                stored = self._log.stored_at(piece.end) or stored
            size = piece.end - piece.start
            if piece.end == self._log.file_end(piece.start):
                self._log.run.write(piece.start, encode_blank(size))
            else:
                damaged = self._log.read(piece.start, size)
                record = encode_placeholder(damaged, piece.start, piece.lost, stored)
                self._log.run.write(piece.start, record)
            self._log.run.sync(piece.start, piece.end)


def _overlap(ranges: list[tuple[int, int]], start: int, end: int) -> bool:
    return any(low < end and start < high for low, high in ranges)
