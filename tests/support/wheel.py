"""RocketMQ 5's timer wheel, built from `timercheck` and `timerlog/` as a broker does."""

import numpy as np
from pyrocket.formats.java_timers import UNIT, TimerCheck, decode_timer_check

FILE_BYTES = 10 * 52 + 16
"""Size of the timer log's files in tests: ten units and a blank."""


class Wheel:
    """Recovers from the files as `TimerMessageStore.recover` does, and determines the timers to
    deliver.
    """

    def __init__(self, path):
        check = path / "config" / "timercheck"
        self.check = decode_timer_check(check.read_bytes()) if check.exists() else TimerCheck()
        self.units, last = {}, {}
        for place, unit in units_in(path):
            slot = int(unit["write_time"]) + int(unit["delay"])
            assert slot % 1000 == 0 or unit["delay"] == 0
            self.units[place] = unit
            last[slot] = place
        self.slots = {slot: list(self.chained(place)) for slot, place in last.items()}

    def chained(self, place):
        """Return the log offsets of a slot's units, oldest first."""
        found = []
        while place != -1:
            unit = self.units[place]
            found.append((int(unit["physical_offset"]), int(unit["magic"])))
            place = int(unit["previous"])
        return reversed(found)

    def dequeued(self):
        """Return (slot, log offset, magic) of all pending units.

        A unit with magic 4 is never delivered (see `TimerMessageStore.needDelete`).
        """
        return [
            (slot, *unit)
            for slot in sorted(self.slots)
            if slot >= self.check.read_ms
            for unit in self.slots[slot]
            if not unit[1] & 4
        ]


def units_in(path):
    for file in sorted((path / "timerlog").glob("*")):
        data = file.read_bytes()
        assert len(data) == FILE_BYTES
        for at in range(0, len(data) - 52 + 1, 52):
            (unit,) = np.frombuffer(data, UNIT, 1, at)
            if unit["size"] != 52 or unit["magic"] not in range(1, 8):
                break
            yield int(file.name) + at, unit
