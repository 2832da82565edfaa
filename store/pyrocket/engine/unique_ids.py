"""Generates UNIQ_KEYs, the message ids that producers assign.

Address (4), process id (u16), class-loader hash (i32), milliseconds since the start of the month
(i32) and a counter (u16), 32 hex characters: `MessageClientIDSetter`. Here the hash is random per
generator, and milliseconds and counter are one 48-bit number that only grows, so that ids of one
generator never repeat, however many are generated per millisecond.
"""

import os
import socket
import threading

import numpy as np
import pyarrow as pa

from pyrocket.clock import Clock
from pyrocket.formats.message_id import hex_column

_MONTH_MS = 31 * 86_400_000


class UniqueIds:
    """Generates UNIQ_KEYs; safe to share between threads, not between processes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0
        prefix = _local_address() + (os.getpid() & 0xFFFF).to_bytes(2, "big") + os.urandom(4)
        self._prefix = np.frombuffer(prefix, np.uint8)

    def column(self, count: int) -> pa.StringArray:
        """Return `count` new ids."""
        first = self._reserve(count)
        rows = np.empty((count, 16), np.uint8)
        rows[:, :10] = self._prefix
        numbers = np.arange(first, first + count, dtype=">u8")
        rows[:, 10:] = numbers.view(np.uint8).reshape(count, 8)[:, 2:]
        return hex_column(rows)

    def one(self) -> str:
        """Return one new id."""
        number = self._reserve(1)
        return (self._prefix.tobytes() + number.to_bytes(6, "big")).hex().upper()

    def _reserve(self, count: int) -> int:
        with self._lock:
            first = max(self._next, (self._clock() % _MONTH_MS) << 16)
            # From 2⁴⁸ on the number would need a seventh byte: start again at 0.
            self._next = first + count if first + count < 1 << 48 else 0
            return first if first + count < 1 << 48 else 0


def _local_address() -> bytes:
    try:
        return socket.inet_aton(socket.gethostbyname(socket.gethostname()))
    except OSError:
        return bytes((127, 0, 0, 1))
