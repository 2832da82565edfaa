"""Writes, at a clean shutdown, the timer files from which a RocketMQ 5 broker continues.

The broker builds its timer wheel from `config/timercheck` and `timerlog/`. Usually, only the timers
that are new since the last shutdown are appended. All files are rewritten if a timer was cancelled,
or after a day, when RocketMQ has to roll timers that are due far in the future. A crash during the
rewrite leaves a `timercheck` without timers: a broker then reads the whole queue again, and may
deliver timers twice, but loses no timer.
"""

import os
from dataclasses import asdict, dataclass

import numpy as np

from pyrocket.disk import io
from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.disk.layout import Layout
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS
from pyrocket.formats.java_timers import (
    FILE_BYTES,
    HOLDS_MS,
    UNIT,
    TimerCheck,
    Units,
    chain,
    encode_timer_blank,
    encode_timer_check,
    marker_of,
    positions,
    slot_times,
    units_of,
    units_per_file,
)
from pyrocket.formats.timer_entry import SLOT_MS, TimerEntries, slot_start
from pyrocket.services.delay.pending_timers import TimerProgress, read_pending
from pyrocket.services.delay.timer_index import Cursor
from pyrocket.services.delay.timer_service import TimerService

_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class _Handed:
    """The content of the broker's files, saved as `pyrocket/handed.json`.

    timed, cursor: see `TimerProgress`. at_ms: time of the last rewrite. units: number of units in
        the timer log. late_ms: the last second assigned to a timer whose own second had passed; 0
        if there is none.
    """

    timed: int
    cursor: Cursor
    at_ms: int
    units: int
    late_ms: int


class JavaHandover:
    """Writes RocketMQ's timer files for one store. The caller must hold the store exclusively."""

    def __init__(self, layout: Layout, service: TimerService) -> None:
        self._layout, self._service = layout, service

    def write(self, progress: TimerProgress, first_due: int, now_ms: int) -> None:
        """Write the pending timers, which are due at `first_due` or later.

        All timers must be indexed. Raises OSError, StoreDamagedError.
        """
        handed, second = self._handed(), now_ms - now_ms % SLOT_MS
        if handed is not None and handed.at_ms <= now_ms < handed.at_ms + HOLDS_MS:
            if (progress.queue_offset, progress.cursor) == (handed.timed, handed.cursor):
                return
            # Timers delivered in the meantime are due before this time, pending timers after it.
            read_ms = min(second + SLOT_MS, slot_start(first_due))
            if read_ms > max(slot_start(progress.cursor[0]), handed.late_ms):
                more = self._add(handed, progress, second)
                if more is not None:
                    self._write_files(read_ms, more)
                    return
        self._write_files(min(second, slot_start(first_due)), self._write_all(progress, second))

    def _add(self, handed: _Handed, progress: TimerProgress, second: int) -> _Handed | None:
        """Append units for new timers; return None if all units have to be rewritten."""
        new = self._service.indexed_since(handed.timed, progress)
        if new is None or (handed.units and not self._layout.timer_log.is_dir()):
            return None
        units = self._units(new, progress.queue_offset, second)
        if len(units):
            JavaTimerLog(self._layout).append(handed.units, units)
        late = _late_slot(new, second) or handed.late_ms
        count = handed.units + len(units)
        return _Handed(progress.queue_offset, progress.cursor, handed.at_ms, count, late)

    def _write_all(self, progress: TimerProgress, second: int) -> _Handed:
        io.unlink(self._layout.handed)
        if self._layout.timer_check.exists():
            self._check(TimerCheck())
        pending = read_pending(self._service.index, progress).pending
        units = self._units(pending, progress.queue_offset, second)
        JavaTimerLog(self._layout).rewrite(units)
        late = _late_slot(pending, second)
        return _Handed(progress.queue_offset, progress.cursor, second, len(units), late)

    def _units(self, pending: TimerEntries, timed: int, second: int) -> Units:
        pending = pending[np.argsort(pending["queue_offset"])]
        units = units_of(pending, second)
        if len(units) and int(pending["queue_offset"][-1]) < timed - 1:
            last = self._service.last_entry(timed)
            units = np.concatenate((units, marker_of(last, second - _HOUR_MS)))
        return units

    def _check(self, check: TimerCheck) -> None:
        io.replace_file(self._layout.timer_check, encode_timer_check(check), self._layout.scratch)

    def _write_files(self, read_ms: int, handed: _Handed) -> None:
        """Write `timercheck` for the broker, and `handed.json` for the next clean shutdown."""
        self._check(TimerCheck(read_ms, 0, handed.timed))
        path = self._layout.handed
        io.replace_file(path, encode_own(path, asdict(handed)), self._layout.scratch)

    def _handed(self) -> _Handed | None:
        try:
            path = self._layout.handed
            known = decode_own(path, io.read_hint(path) or b"null")
            due, offset = known["cursor"]
            counts = (int(known[name]) for name in ("at_ms", "units", "late_ms"))
            return _Handed(int(known["timed"]), (int(due), int(offset)), *counts)
        except PARSE_ERRORS:
            return None


def _late_slot(pending: TimerEntries, second: int) -> int:
    """Return the second assigned to timers whose own second has passed; 0 if there are none."""
    return second if len(pending) and slot_start(int(pending["due"].min())) < second else 0


class JavaTimerLog:
    """The timer log of one store. Callers must hold the store exclusively; writes are durable."""

    def __init__(self, layout: Layout) -> None:
        """Open the log. New files are as large as existing ones, or as RocketMQ's."""
        self._layout = layout
        sizes = (path.stat().st_size for path in sorted(layout.timer_log.glob("*")))
        sound = (size for size in sizes if units_per_file(size) > 0)
        self._file_bytes = next(sound, FILE_BYTES)
        self._per_file = units_per_file(self._file_bytes)

    def rewrite(self, units: Units) -> None:
        """Replace all units; a broker's timer wheel is deleted with its log."""
        layout = self._layout
        io.unlink(layout.timer_wheel)
        for path in sorted(layout.timer_log.glob("*"), reverse=True):
            io.unlink(path)
        for folder in (layout.timer_log, layout.root):
            if folder.is_dir():
                io.sync_directory(folder)
        self.append(0, units)

    def append(self, count: int, units: Units) -> None:
        """Write units after the first `count`."""
        places = positions(count + len(units), self._file_bytes)
        known = self._read(count)
        wanted = np.flatnonzero(np.isin(slot_times(known), slot_times(units)))
        both = np.concatenate((known[wanted], units))
        chain(both, np.concatenate((places[wanted], places[count:])))
        # Concatenated arrays have the machine's byte order.
        self._write(count, both[len(wanted) :].astype(UNIT), places[count:])

    def _read(self, count: int) -> Units:
        parts = [np.zeros(0, UNIT)]
        for first in range(0, count, self._per_file):
            path = self._layout.timer_log / file_name(first // self._per_file * self._file_bytes)
            length = min(self._per_file, count - first) * UNIT.itemsize
            with io.opened(path, os.O_RDONLY) as descriptor:
                data = os.pread(descriptor, length, 0)
            parts.append(np.frombuffer(data, UNIT, len(data) // UNIT.itemsize))
        return np.concatenate(parts)

    def _write(self, count: int, units: Units, places: Ints) -> None:
        """Write chained units after `count` others."""
        run = FileQueue(self._layout.timer_log, self._file_bytes, self._layout.scratch)
        first = 0
        while first < len(units):
            room = self._per_file - (count + first) % self._per_file
            content = units[first : first + room].tobytes()
            end = int(places[first]) % self._file_bytes + len(content)
            if first + room <= len(units):
                content += encode_timer_blank(self._file_bytes - end)
            run.write_or_create(int(places[first]), content)
            run.sync(int(places[first]), int(places[first]) + 1)
            first += room
        run.close()
