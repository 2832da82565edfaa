"""At a clean end: what a RocketMQ 5 broker needs to go on with our timers.

It reads `config/timercheck`, follows `timerlog/`, and makes its wheel from that. Both are written
anew where timers have come since they were written last, in an order that leaves, whoever dies, a
`timercheck` that has taken in nothing: a broker then takes in the whole queue again, and repeats
rather than loses. What is in `timerlog` holds for a day: by then those that are far ahead have to
be stored anew.
"""

import json
from dataclasses import dataclass

import numpy as np

from pyrocket.disk import io
from pyrocket.disk.durable import read_or_none, replace_file
from pyrocket.disk.file_run import FileRun
from pyrocket.disk.layout import Layout
from pyrocket.disk.state_page import NEVER
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.timer_check import TimerCheck, encode_timer_check
from pyrocket.formats.timer_entry import SLOT_MS, TimerEntries, slot_start
from pyrocket.formats.timer_wheel import (
    FILE_BYTES,
    HOLDS_MS,
    UNIT,
    chain,
    encode_timer_blank,
    marker_of,
    positions,
    units_of,
    units_per_file,
)
from pyrocket.index.timer_buckets import Cursor
from pyrocket.timers.waiting import Progress

_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class _Handed:
    """What was handed over last: how far timers were taken in and delivered, and when."""

    timed: int
    cursor: Cursor
    at_ms: int


class HandOver:
    """Writes RocketMQ's files of one store. Its callers have the store alone."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def write(self, progress: Progress, pending: TimerEntries, last: Entries, now_ms: int) -> None:
        """Hand over what is pending.

        `last` is the queue entry of the last timer taken in; none if it is gone.
        Everything is taken in. Raises OSError.
        """
        handed = self._handed()
        first = slot_start(int(pending["due"][0])) if len(pending) else NEVER
        second = now_ms - now_ms % SLOT_MS
        if handed and progress.timed == handed.timed and _holds(handed, now_ms):
            if progress.cursor == handed.cursor:
                return
            read_ms = min(second + SLOT_MS, first)
            if read_ms > max(slot_start(progress.cursor[0]), handed.at_ms):
                self._check(TimerCheck(read_ms, 0, progress.timed))
                self._note(_Handed(progress.timed, progress.cursor, handed.at_ms))
                return
        self._write_all(progress.timed, pending, last, second)
        self._check(TimerCheck(min(second, first), 0, progress.timed))
        self._note(_Handed(progress.timed, progress.cursor, second))

    def _write_all(self, timed: int, pending: TimerEntries, last: Entries, second: int) -> None:
        layout = self._layout
        io.unlink(layout.handed)
        if layout.timer_check.exists():
            self._check(TimerCheck())
        file_bytes = self._forget()
        pending = pending[np.argsort(pending["queue_offset"])]
        units = units_of(pending, second)
        if len(units) and int(pending["queue_offset"][-1]) < timed - 1:
            units = np.concatenate((units, marker_of(last, second - _HOUR_MS)))
        chain(units, positions(len(units), file_bytes))
        run = FileRun(layout.timer_log, file_bytes, layout.scratch)
        per_file = units_per_file(file_bytes)
        for number, first in enumerate(range(0, len(units), per_file)):
            # Joined arrays have the machine's byte order.
            content = units[first : first + per_file].astype(UNIT).tobytes()
            if first + per_file < len(units):
                content += encode_timer_blank(file_bytes - len(content))
            run.create(number * file_bytes, content)

    def _forget(self) -> int:
        """Remove a broker's wheel and log; return the size of the log's files."""
        layout = self._layout
        io.unlink(layout.timer_wheel)
        file_bytes = FILE_BYTES
        for path in sorted(layout.timer_log.glob("*"), reverse=True):
            file_bytes = path.stat().st_size or file_bytes
            io.unlink(path)
        for folder in (layout.timer_log, layout.root):
            if folder.is_dir():
                io.sync_directory(folder)
        return file_bytes

    def _check(self, check: TimerCheck) -> None:
        content = encode_timer_check(check)
        replace_file(self._layout.timer_check, content, self._layout.scratch)

    def _note(self, handed: _Handed) -> None:
        content = {"timed": handed.timed, "cursor": handed.cursor, "at": handed.at_ms}
        replace_file(self._layout.handed, json.dumps(content).encode(), self._layout.scratch)

    def _handed(self) -> _Handed | None:
        try:
            known = json.loads(read_or_none(self._layout.handed) or b"null")
            due, offset = known["cursor"]
            return _Handed(int(known["timed"]), (int(due), int(offset)), int(known["at"]))
        except (ValueError, TypeError, KeyError):
            return None


def _holds(handed: _Handed, now_ms: int) -> bool:
    return handed.at_ms <= now_ms < handed.at_ms + HOLDS_MS
