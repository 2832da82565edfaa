"""An event that processes share through a 32-bit word in a mapped file: Linux's futex.

A waiting process passes the last sequence number that it read; if the event was notified since, it
does not sleep. A notification may be missing, because concurrent notifications are merged and a
killed process sends none; a process therefore sleeps for a few ms at most. Each waiting process has
one of 32 kinds, which are bits, so that a notification can wake only some of the processes. Where
no event is available (on other systems, or on a full disk), waiting processes poll.
"""

import ctypes
import mmap
import os
import platform
import sys
import time

from pyrocket.disk import io

_WORD_BYTES = 4
_MAX = 0x7FFFFFFF
_WAIT_BITSET, _WAKE_BITSET = 9, 10
ALL_KINDS = 0xFFFFFFFF

_CALL_NUMBERS = {"x86_64": 202, "aarch64": 98}
_CALL_NUMBER = (
    _CALL_NUMBERS.get(platform.machine())
    if sys.platform == "linux" and sys.maxsize > 1 << 32
    else None
)


class SharedEvent:
    """An event in the first 4 bytes of an open file."""

    longest_sleep_ns = 5_000_000

    def __init__(self, descriptor: int) -> None:
        self._map = _mapped(descriptor)
        if self._map is not None:
            self._words = memoryview(self._map).cast("i")
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def sequence(self) -> int:
        """Return the number of notifications so far, modulo 2^31."""
        return 0 if self._map is None else self._words[0]

    def wait(
        self, seen: int, pause: float, kind: int = ALL_KINDS, max_ns: int | None = None
    ) -> None:
        """Sleep until this kind is notified, but for at most 5 ms or `max_ns`, whichever is less.

        Returns at once if the event was notified since `seen`. A kind is one of 32 bits of an
        integer. Without futexes, sleeps for `pause` seconds.
        """
        if self._map is None:
            time.sleep(pause)
            return
        longest = self.longest_sleep_ns if max_ns is None else min(max_ns, self.longest_sleep_ns)
        until = divmod(time.monotonic_ns() + longest, 1_000_000_000)
        limit = ctypes.byref((ctypes.c_long * 2)(*until))
        _futex(self._address, _WAIT_BITSET, seen, limit, kind)

    def notify(self, sleepers: int = _MAX, kinds: int = ALL_KINDS) -> None:
        """Wake at most `sleepers` processes of these kinds, longest waiting first."""
        if self._map is not None:
            self._words[0] = self._words[0] + 1 & _MAX
            _futex(self._address, _WAKE_BITSET, sleepers, None, kinds)

    def close(self) -> None:
        """Unmap."""
        if self._map is not None:
            self._words.release()
            self._map.close()
            self._map = None


def _mapped(descriptor: int) -> mmap.mmap | None:
    """Map the word, creating it if it is missing; None if futexes are not available."""
    if _CALL_NUMBER is None:
        return None
    try:
        # Not a hole: on a full disk, writing to a mapped hole kills the process.
        if os.fstat(descriptor).st_size < _WORD_BYTES:
            io.write_at(descriptor, bytes(_WORD_BYTES), 0)
        return mmap.mmap(descriptor, _WORD_BYTES)
    except OSError:
        return None


def _futex(address: int, operation: int, value: int, limit: object, kinds: int) -> None:
    """Sleep or wake. The result is ignored, because a process checks the state after waking."""
    _call(_CALL_NUMBER, address, operation, value, limit, None, kinds)


_call = ctypes.CDLL(None).syscall
_call.argtypes = [
    ctypes.c_long,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_uint,
]
_call.restype = ctypes.c_long
