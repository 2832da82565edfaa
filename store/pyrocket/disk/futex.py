"""A word in a shared file on which processes sleep until another one rings it: Linux's futex.

A sleeper says what it has seen last; if the word has been rung since, it does not fall asleep.
Two that ring at once may count as one, and who dies does not ring, so nobody sleeps for long.
Sleepers may be of 32 kinds, one bit each, so that not all of them are woken. On other systems, and
on a full disk, there is no bell, and sleepers only look now and then.
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
_LONGEST_SLEEP_NS = 5_000_000
_WAIT_BITSET, _WAKE_BITSET = 9, 10
ALL_KINDS = 0xFFFFFFFF

_CALL_NUMBERS = {"x86_64": 202, "aarch64": 98}
_CALL_NUMBER = (
    _CALL_NUMBERS.get(platform.machine())
    if sys.platform == "linux" and sys.maxsize > 1 << 32
    else None
)


class SharedEvent:
    """The first word of an open file."""

    def __init__(self, descriptor: int) -> None:
        self._map = _mapped(descriptor)
        if self._map is not None:
            self._words = memoryview(self._map).cast("i")
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def sequence(self) -> int:
        """Return what has been seen so far."""
        return 0 if self._map is None else self._words[0]

    def wait(
        self, seen: int, pause: float, kind: int = ALL_KINDS, most_ns: int | None = None
    ) -> None:
        """Sleep until it is rung for this kind, or a few ms; not at all if rung since `seen`.

        A kind is one bit of 32. `most_ns` is the longest sleep, if that is less than a few ms.
        Where there is no bell, sleep for `pause` seconds.
        """
        if self._map is None:
            time.sleep(pause)
            return
        longest = _LONGEST_SLEEP_NS if most_ns is None else min(most_ns, _LONGEST_SLEEP_NS)
        until = divmod(time.monotonic_ns() + longest, 1_000_000_000)
        limit = ctypes.byref((ctypes.c_long * 2)(*until))
        _futex(self._address, _WAIT_BITSET, seen, limit, kind)

    def notify(self, sleepers: int = _MAX, kinds: int = ALL_KINDS) -> None:
        """Wake so many of those of these kinds who sleep, who came first the first."""
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
    """Map the word, which is made if it is missing; None where there can be no bell."""
    if _CALL_NUMBER is None:
        return None
    try:
        # Never a hole: on a full disk a store into a mapped one kills the process.
        if os.fstat(descriptor).st_size < _WORD_BYTES:
            io.write_at(descriptor, bytes(_WORD_BYTES), 0)
        return mmap.mmap(descriptor, _WORD_BYTES)
    except OSError:
        return None


def _futex(address: int, operation: int, value: int, limit: object, kinds: int) -> None:
    """Sleep or wake. Whatever it returns, who slept looks again."""
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
