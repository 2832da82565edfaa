"""RocketMQ 5's `timerlog/`: writes its units, all of them or new ones at the end."""

import os

import numpy as np

from pyrocket.disk import io
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import Layout, file_name
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.java_timers import (
    FILE_BYTES,
    UNIT,
    Units,
    chain,
    encode_timer_blank,
    positions,
    slot_times,
    units_per_file,
)


class JavaTimerLog:
    """The timer log of one store. Callers hold the store exclusively; all writes are durable."""

    def __init__(self, layout: Layout, file_bytes: int = 0) -> None:
        """Open the log; new files have the size of existing ones, `file_bytes`, or RocketMQ's."""
        self._layout = layout
        sizes = (path.stat().st_size for path in sorted(layout.timer_log.glob("*")))
        sound = (size for size in sizes if units_per_file(size) > 0)
        self._file_bytes = next(sound, 0) or file_bytes or FILE_BYTES
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
        self._write(0, units, positions(len(units), self._file_bytes))

    def append(self, count: int, units: Units) -> None:
        """Write units after the first `count`."""
        places = positions(count + len(units), self._file_bytes)
        before, places = places[:count], places[count:]
        known = self._read(count)
        wanted = np.isin(slot_times(known), slot_times(units))
        self._write(count, units, places, known[wanted], before[wanted])

    def _read(self, count: int) -> Units:
        parts = [np.zeros(0, UNIT)]
        for first in range(0, count, self._per_file):
            path = self._layout.timer_log / file_name(first // self._per_file * self._file_bytes)
            descriptor = io.open_file(path, os.O_RDONLY)
            try:
                length = min(self._per_file, count - first) * UNIT.itemsize
                data = os.pread(descriptor, length, 0)
                parts.append(np.frombuffer(data, UNIT, len(data) // UNIT.itemsize))
            finally:
                os.close(descriptor)
        return np.concatenate(parts)

    def _write(
        self,
        count: int,
        units: Units,
        places: Ints,
        known: Units | None = None,
        known_places: Ints | None = None,
    ) -> None:
        """Write units after `count` others; `known` are those of them in the same seconds."""
        if known is not None and known_places is not None:
            both = np.concatenate((known, units))
            chain(both, np.concatenate((known_places, places)))
            units = both[len(known) :]
        else:
            chain(units, places)
        # Concatenated arrays have the machine's byte order.
        units = units.astype(UNIT)
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
