"""The log of RocketMQ 5's timers, `timerlog/<20 digits>`: units of 52 bytes, big-endian.

     0  size (4)            52
     4  prevPosition (8)    of the unit before in the same slot, -1 for the first
    12  magic (4)           1; with 2: stored anew at the slot's time, not delivered; with 4: never
                            delivered, calls off what its message says, if it says so
    16  writeTime (8)       epoch ms
    24  delay (4)           slot's time less writeTime, ms
    28  physicalOffset (8)
    36  recordSize (4)
    40  topicHash (4)       for statistics; 0
    44  reserved (8)

Files have one size, 100 MiB by default; where no unit fits any more a blank says so: (bytes left
(4), 0 (8), BLANK_MAGIC (4)). The wheel itself, `timerwheel`, has the last unit of each slot; a
broker makes it from the log if it is missing. Source: `TimerLog`, `TimerMessageStore.doEnqueue`
and `recoverAndRevise`.
"""

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.timer_entry import SLOT_MS, TimerEntries

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
"""What is further ahead is stored anew after about as long: timerRollWindowSlot."""

HOLDS_MS = ROLL_MS // 2 - 3_600_000
"""So long all units have slots that are still to come."""

Units = npt.NDArray[np.void]


def units_of(entries: TimerEntries, now_ms: int) -> Units:
    """Return the units of timers, in the order of their queue offsets; `previous` is not set.

    Overdue ones are put into the slot of now.
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
    """Return a last unit that delivers nothing, whatever its message is.

    A broker goes on in the queue behind the message of the last unit. Its slot is past, but a
    broker begins with the slot of what is late, and may come to it all the same. Source:
    `TimerMessageStore.reviseQueueOffset`, `TimerDequeueGetMessageService`.
    """
    units = np.zeros(len(last), UNIT)
    units["size"], units["magic"] = UNIT_BYTES, _DEFAULT | _DELETE
    units["write_time"] = before_ms
    units["physical_offset"], units["record_size"] = last["physical_offset"], last["size"]
    return units


def slot_times(units: Units) -> Ints:
    """Return the slot of each unit, epoch ms."""
    return units["write_time"].astype(np.int64) + units["delay"]


def positions(count: int, file_bytes: int) -> Ints:
    """Return where so many units lie, from the beginning on."""
    numbers = np.arange(count)
    per_file = units_per_file(file_bytes)
    return numbers // per_file * file_bytes + numbers % per_file * UNIT_BYTES


def units_per_file(file_bytes: int) -> int:
    """Return how many units a file has: a blank has to fit behind each."""
    return (file_bytes - UNIT_BYTES - _BLANK_BYTES) // UNIT_BYTES + 1


def chain(units: Units, places: Ints) -> None:
    """Set `previous` of units that lie at these places."""
    times = slot_times(units)
    order = np.lexsort((places, times))
    same = times[order][1:] == times[order][:-1]
    previous = np.full(len(units), -1)
    previous[order[1:][same]] = places[order[:-1][same]]
    units["previous"] = previous


def encode_timer_blank(left: int) -> bytes:
    """Return what stands behind the last unit of a full file."""
    return left.to_bytes(4, "big") + bytes(8) + _BLANK_MAGIC.to_bytes(4, "big")
