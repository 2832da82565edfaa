"""How far a RocketMQ 5 broker has come with its timers: the file `config/timercheck`.

    offset  size  field
    0       8     lastReadTimeMs          slots before it are delivered
    8       8     lastTimerLogFlushPos
    16      8     lastTimerQueueOffset    the timers before it are in the wheel, or delivered
    24      8     masterTimerQueueOffset  the same, of a master
    32      24    DataVersion: state version, timestamp, counter

4096 bytes, big-endian. Source: `TimerCheckpoint`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.formats.timer_entry import TimerEntries

TIMER_CHECK_BYTES = 4096


@dataclass(frozen=True)
class TimerCheck:
    """Timers below `queue_offset` whose slots begin before `read_ms` (epoch) are delivered."""

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0


def encode_timer_check(check: TimerCheck) -> bytes:
    """Return the content of the file."""
    words = check.read_ms, check.log_position, check.queue_offset, check.queue_offset
    content = b"".join(word.to_bytes(8, "big", signed=True) for word in words)
    return content.ljust(TIMER_CHECK_BYTES, b"\0")


def decode_timer_check(data: bytes) -> TimerCheck:
    """Return what it says; a short file counts as zeros."""
    padded = data.ljust(32, b"\0")
    read_ms, position, own, master = (
        int.from_bytes(padded[at : at + 8], "big", signed=True) for at in (0, 8, 16, 24)
    )
    return TimerCheck(max(read_ms, 0), max(position, 0), max(min(own, master), 0))


def delivered_by(check: TimerCheck, entries: TimerEntries) -> npt.NDArray[np.bool_]:
    """Return what a broker that has come so far has delivered for sure.

    Of what is due at `read_ms` itself it has delivered what it has rounded down.
    """
    known = entries["queue_offset"] < check.queue_offset
    return np.asarray(known & (entries["due"] < check.read_ms))
