"""Files of a RocketMQ 5 broker's timers: `config/timercheck` and `timerlog/<20 digits>`.

`timercheck` has the broker's progress: 4096 bytes, big-endian. Source: `TimerCheckpoint`.

    offset  size  field
    0       8     lastReadTimeMs          slots before this time are delivered
    8       8     lastTimerLogFlushPos
    16      8     lastTimerQueueOffset    timers before this offset are in the wheel or delivered
    24      8     masterTimerQueueOffset  the same for the master
    32      24    DataVersion: state version, timestamp, counter

The timer log consists of units of 52 bytes, big-endian. Source: `TimerLog`,
`TimerMessageStore.doEnqueue` and `recoverAndRevise`.

    offset  size  field
    0       4     size            52
    4       8     prevPosition    of the previous unit in the same slot, -1 for the first unit
    12      4     magic           1; 2: re-appended at the slot's time, not delivered; 4: never
                                  delivered, cancels the message given in its properties, if any
    16      8     writeTime       epoch ms
    24      4     delay           slot's time minus writeTime, ms
    28      8     physicalOffset
    36      4     recordSize
    40      4     topicHash       for statistics; 0
    44      8     reserved

All its files have the same size, 100 MiB by default. If no further unit fits, a blank unit ends the
file: remaining bytes (4), 0 (8), BLANK_MAGIC (4). The wheel itself, `timerwheel`, has the position
of the last unit of each slot; a broker rebuilds a missing wheel from the log.
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.timer_entry import SLOT_MS, TimerEntries

TIMER_CHECK_BYTES = 4096
_CHECK = struct.Struct(">4q")


@dataclass(frozen=True)
class TimerCheck:
    """Timers before `queue_offset` in slots that begin before `read_ms` (epoch) are delivered."""

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0


def encode_timer_check(check: TimerCheck) -> bytes:
    content = _CHECK.pack(*vars(check).values(), check.queue_offset)
    return content.ljust(TIMER_CHECK_BYTES, b"\0")


def decode_timer_check(data: bytes) -> TimerCheck:
    """Decode the content of the file; missing bytes are read as zeros."""
    read_ms, position, own, master = _CHECK.unpack_from(data.ljust(_CHECK.size, b"\0"))
    return TimerCheck(max(read_ms, 0), max(position, 0), max(min(own, master), 0))


def delivered_by(check: TimerCheck, entries: TimerEntries) -> npt.NDArray[np.bool_]:
    """Return a mask of the timers that a broker with this checkpoint has delivered for certain.

    Of the timers due exactly at `read_ms`, it has only delivered those that it rounded down.
    """
    known = entries["queue_offset"] < check.queue_offset
    return np.asarray(known & (entries["due"] < check.read_ms))


FILE_BYTES = 100 * 1024 * 1024
UNIT = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("write_time", ">i8"),
        ("delay", ">i4"),
        ("physical_offset", ">i8"),
        ("record_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)
UNIT_BYTES = UNIT.itemsize
_DEFAULT, _ROLL, _DELETE = 1, 2, 4
_BLANK_BYTES = 16
_BLANK_MAGIC = (0xBBCCDDEE ^ 1880681586 + 8) & 0xFFFFFFFF
ROLL_MS = 2 * 24 * 3_600_000
"""Timers with a longer delay are re-appended after about this time: timerRollWindowSlot."""

HOLDS_MS = ROLL_MS // 2 - 3_600_000
"""Duration after writing during which the slots of all units are in the future."""

Units = npt.NDArray[np.void]


def units_of(entries: TimerEntries, now_ms: int) -> Units:
    """Return the units of timers in queue order, without `previous`.

    Overdue timers are put into the current slot.
    """
    written = now_ms - now_ms % SLOT_MS
    slots = np.maximum((entries["due"] - 1) // SLOT_MS * SLOT_MS, written)
    ahead = slots - written
    rolls = ahead >= ROLL_MS
    nearly = ahead - ROLL_MS < ROLL_MS // 3
    ahead = np.where(rolls, np.where(nearly, ROLL_MS // 2, ROLL_MS), ahead)
    units = np.zeros(len(entries), UNIT)
    units["size"] = UNIT_BYTES
    units["magic"] = np.where(rolls, _DEFAULT | _ROLL, _DEFAULT)
    units["write_time"], units["delay"] = written, ahead
    units["physical_offset"], units["record_size"] = entries["physical_offset"], entries["size"]
    return units


def marker_of(last: Entries, before_ms: int) -> Units:
    """Return a final unit that never delivers its message.

    A broker continues in the queue after the message of the last unit. The unit's slot is in the
    past, but a broker starts at the oldest overdue slot and may still process it. Source:
    `TimerMessageStore.reviseQueueOffset`, `TimerDequeueGetMessageService`.
    """
    units = np.zeros(len(last), UNIT)
    units["size"], units["magic"] = UNIT_BYTES, _DEFAULT | _DELETE
    units["write_time"] = before_ms
    units["physical_offset"], units["record_size"] = last["physical_offset"], last["size"]
    return units


def slot_times(units: Units) -> Ints:
    """Return the time of each unit's slot, epoch ms."""
    return units["write_time"].astype(np.int64) + units["delay"]


def positions(count: int, file_bytes: int) -> Ints:
    """Return the positions of the first `count` units."""
    numbers = np.arange(count)
    per_file = units_per_file(file_bytes)
    return numbers // per_file * file_bytes + numbers % per_file * UNIT_BYTES


def units_per_file(file_bytes: int) -> int:
    """Return the number of units that fit into a file, with room for a blank unit after each."""
    return (file_bytes - UNIT_BYTES - _BLANK_BYTES) // UNIT_BYTES + 1


def chain(units: Units, places: Ints) -> None:
    times = slot_times(units)
    order = np.lexsort((places, times))
    same = times[order][1:] == times[order][:-1]
    previous = np.full(len(units), -1)
    previous[order[1:][same]] = places[order[:-1][same]]
    units["previous"] = previous


def encode_timer_blank(left: int) -> bytes:
    """Return the blank unit that follows the last unit of a full file."""
    return left.to_bytes(4, "big") + bytes(8) + _BLANK_MAGIC.to_bytes(4, "big")
