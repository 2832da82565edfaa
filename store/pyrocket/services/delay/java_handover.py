"""At a clean end: what a RocketMQ 5 broker needs to go on with our timers.

It reads `config/timercheck`, follows `timerlog/`, and makes its wheel from that. New timers are put
behind those that were handed over before; all is written anew where something was called off, or
when a day has passed: by then what is far ahead has to be stored anew. That is done in an order
that leaves, whoever dies, a `timercheck` that has taken in nothing: a broker then takes in the
whole queue again, and repeats rather than loses.
"""

from dataclasses import asdict, dataclass

import numpy as np

from pyrocket.disk import io
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.java_timers import (
    HOLDS_MS,
    TimerCheck,
    Units,
    encode_timer_check,
    marker_of,
    units_of,
)
from pyrocket.formats.timer_entry import SLOT_MS, TimerEntries, slot_start
from pyrocket.services.delay.java_timer_log import JavaTimerLog
from pyrocket.services.delay.pending_timers import TimerProgress
from pyrocket.services.delay.timer_index import Cursor
from pyrocket.services.delay.timer_service import TimerService

_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class _Handed:
    """What was handed over: timers taken in and delivered, when all was written, how many units.

    late_ms: the last slot that was given to a timer because its own was over; 0 if none was.
    """

    timed: int
    cursor: Cursor
    at_ms: int
    units: int
    late_ms: int


class JavaHandover:
    """Writes RocketMQ's files of one store. Its callers have the store alone."""

    def __init__(self, layout: Layout, service: TimerService) -> None:
        self._layout, self._service = layout, service

    def write(self, progress: TimerProgress, first_due: int, now_ms: int) -> None:
        """Hand over what is pending, which is due at `first_due` or later. All is taken in.

        Raises OSError, StoreDamagedError.
        """
        handed, second = self._handed(), now_ms - now_ms % SLOT_MS
        if handed is not None and handed.at_ms <= now_ms < handed.at_ms + HOLDS_MS:
            if (progress.timed, progress.cursor) == (handed.timed, handed.cursor):
                return
            # Before that lies all that has been delivered since, behind it all that has not.
            read_ms = min(second + SLOT_MS, slot_start(first_due))
            if read_ms > max(slot_start(progress.cursor[0]), handed.late_ms):
                more = self._add(handed, progress, second)
                if more is not None:
                    self._write_files(read_ms, more)
                    return
        self._write_files(min(second, slot_start(first_due)), self._write_all(progress, second))

    def _add(self, handed: _Handed, progress: TimerProgress, second: int) -> _Handed | None:
        """Put units of what is new behind the others; None where that cannot be done."""
        new = self._service.indexed_since(handed.timed, progress)
        if new is None or (handed.units and not self._layout.timer_log.is_dir()):
            return None
        units = self._units(new, progress.timed, second)
        if len(units):
            JavaTimerLog(self._layout).append(handed.units, units)
        late = _late_slot(new, second) or handed.late_ms
        count = handed.units + len(units)
        return _Handed(progress.timed, progress.cursor, handed.at_ms, count, late)

    def _write_all(self, progress: TimerProgress, second: int) -> _Handed:
        io.unlink(self._layout.handed)
        if self._layout.timer_check.exists():
            self._check(TimerCheck())
        pending = self._service.indexed(progress).pending
        units = self._units(pending, progress.timed, second)
        JavaTimerLog(self._layout).rewrite(units)
        late = _late_slot(pending, second)
        return _Handed(progress.timed, progress.cursor, second, len(units), late)

    def _units(self, pending: TimerEntries, timed: int, second: int) -> Units:
        pending = pending[np.argsort(pending["queue_offset"])]
        units = units_of(pending, second)
        if len(units) and int(pending["queue_offset"][-1]) < timed - 1:
            last = self._service.last_entry(timed)
            units = np.concatenate((units, marker_of(last, second - _HOUR_MS)))
        return units

    def _check(self, check: TimerCheck) -> None:
        content = encode_timer_check(check)
        replace_file(self._layout.timer_check, content, self._layout.scratch)

    def _write_files(self, read_ms: int, handed: _Handed) -> None:
        """Say what was handed over: to a broker, and to whoever comes to the next clean end."""
        self._check(TimerCheck(read_ms, 0, handed.timed))
        path = self._layout.handed
        replace_file(path, encode_own(path, asdict(handed)), self._layout.scratch)

    def _handed(self) -> _Handed | None:
        try:
            path = self._layout.handed
            known = decode_own(path, read_or_none(path) or b"null")
            due, offset = known["cursor"]
            counts = (int(known[name]) for name in ("at_ms", "units", "late_ms"))
            return _Handed(int(known["timed"]), (int(due), int(offset)), *counts)
        except (ValueError, TypeError, KeyError):
            return None


def _late_slot(pending: TimerEntries, second: int) -> int:
    """Return the slot of those whose own is over; 0 if there are none."""
    return second if len(pending) and slot_start(int(pending["due"].min())) < second else 0
