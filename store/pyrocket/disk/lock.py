"""File locks: the lock that a writer session holds, and the write lock for each append.

These are open-file-description locks: the kernel releases them when the process dies, and they
conflict with the JVM's locks in both directions. A forked child would share its parent's locks and
keep them after the parent's death, so the child closes the lock files at once.

To take the write lock, a process locks the turnstile, locks the mutex, and unlocks the turnstile.
Without the turnstile, one busy writer would starve all others. A waiting process sleeps on a shared
event in the lock's file until the lock is released.

The event is a 32-bit word in the mapped file: Linux's futex. A waiting process passes the last
sequence number that it read; if the event was notified since, it does not sleep. A notification may
be missing, because concurrent notifications are merged and a killed process sends none; a process
therefore sleeps for a few ms at most. Each waiting process has one of 32 kinds, which are bits, so
that a notification can wake only some of the processes. Where no event is available (on other
systems, or on a full disk), waiting processes poll.
"""

import ctypes
import fcntl
import mmap
import os
import platform
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyrocket.disk import io
from pyrocket.errors import StoreDamagedError, StoreFailedError, StoreLockedError

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


_FLOCK = struct.Struct("hhqqi4x")
_SHORTEST_WAIT, _LONGEST_WAIT = 0.00005, 0.002
_SHORT_SECTION = 0.02
"""Most exclusive sections end within this time (s), during which the next process polls often."""

_open_locks: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


class FileLock:
    """A lock on byte 0 of a file, created if missing. Not safe to share between threads."""

    def __init__(self, path: Path, content: bytes = b"") -> None:
        self.path = path
        self._descriptor: int | None = io.open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if content and os.fstat(self._descriptor).st_size == 0:
                os.pwrite(self._descriptor, content, 0)
        except BaseException:
            self.close()
            raise
        _open_locks.add(self)

    def try_lock(self, *, shared: bool = False) -> bool:
        """Take the lock or change its kind; False if another process holds a conflicting lock."""
        return self._set(fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Release the lock; the file stays open."""
        self._set(fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the lock and close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _set(self, kind: int) -> bool:
        if self._descriptor is None:
            raise StoreFailedError(
                f"the lock {self.path} was closed, by close() or because this process was forked.",
                remedy="Open the store in the process that uses it.",
            )
        try:
            _set_lock(self._descriptor, kind)
        except (BlockingIOError, PermissionError):
            return False
        return True


class EventLock(FileLock):
    """A lock whose `event` wakes waiting processes when the lock is released.

    To wait for the lock, read the `sequence` of the event before each attempt to take it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        assert self._descriptor is not None
        self.event = SharedEvent(self._descriptor)

    def release(self) -> None:
        """Release the lock and wake the process that has been waiting longest."""
        self.unlock()
        self.event.notify(1)

    def hand_over(self, next_one: int, others: int) -> None:
        """Release the lock; wake one process of kind `next_one`, then all of kind `others`."""
        self.unlock()
        self.event.notify(1, next_one)
        self.event.notify(kinds=others)

    def close(self) -> None:
        super().close()
        self.event.close()


def _set_ofd_lock(descriptor: int, kind: int) -> None:
    names = {fcntl.LOCK_SH: fcntl.F_RDLCK, fcntl.LOCK_EX: fcntl.F_WRLCK}
    request = _FLOCK.pack(names.get(kind, fcntl.F_UNLCK), os.SEEK_SET, 0, 1, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)


def _set_flock(descriptor: int, kind: int) -> None:
    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)


# flock conflicts with the JVM's record locks on BSD kernels, including macOS, but not on Linux.
_set_lock = _set_ofd_lock if sys.platform == "linux" else _set_flock


def is_locked(path: Path) -> bool | None:
    """Return whether a process holds a lock on byte 0 of a file; None if this cannot be determined.

    Does not take a lock: Linux allows the query on a read-only descriptor.
    """
    if sys.platform != "linux":
        return None
    try:
        with io.opened(path, os.O_RDONLY) as descriptor:
            request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, request)
    except (OSError, StoreDamagedError):
        return None
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


class WriteLock:
    """RocketMQ's PutMessageLock for processes and threads: a fair, exclusive lock.

    `holder` returns the pid of the process that took the lock last, for error messages.
    """

    def __init__(self, mutex: Path, turnstile: Path, holder: Callable[[], int]) -> None:
        self._mutex = EventLock(mutex)
        try:
            self._turnstile = EventLock(turnstile)
        except BaseException:
            self._mutex.close()
            raise
        self._threads = threading.Lock()
        self._holder = holder
        self._count, self._inside, self._began = 0, False, 0

    @property
    def elapsed_ns(self) -> int:
        """Time since this process took the lock."""
        return time.monotonic_ns() - self._began

    @property
    def section(self) -> int:
        """The number of this process's exclusive section, from 1; 0 outside of one."""
        return self._count if self._inside else 0

    @contextmanager
    def hold(self, timeout_ms: int) -> Iterator[None]:
        """Hold the lock. Raises StoreLockedError (LOCK_TIMEOUT) with the pid of the holder."""
        deadline = time.monotonic() + timeout_ms / 1000
        if not self._threads.acquire(timeout=timeout_ms / 1000):
            raise self._late(timeout_ms)
        try:
            self._wait(self._turnstile, deadline, timeout_ms, _LONGEST_WAIT)
            try:
                self._wait(self._mutex, deadline, timeout_ms, _SHORTEST_WAIT)
            finally:
                self._turnstile.release()
            self._count, self._inside = self._count + 1, True
            self._began = time.monotonic_ns()
            try:
                yield
            finally:
                self._inside = False
                self._mutex.release()
        finally:
            self._threads.release()

    def close(self) -> None:
        self._mutex.close()
        self._turnstile.close()

    def _wait(self, lock: EventLock, deadline: float, timeout_ms: int, longest: float) -> None:
        """Take a lock. Without shared events, the next process polls often, others less often."""
        patient_from = time.monotonic() + _SHORT_SECTION
        pause, seen = _SHORTEST_WAIT, lock.event.sequence()
        while not lock.try_lock():
            now = time.monotonic()
            if now > deadline:
                raise self._late(timeout_ms)
            lock.event.wait(seen, pause)
            seen = lock.event.sequence()
            pause = min(2 * pause, _LONGEST_WAIT if now > patient_from else longest)

    def _late(self, timeout_ms: int) -> StoreLockedError:
        return StoreLockedError(
            f"the write lock of {self._mutex.path.parent.parent} was not free within"
            f" {timeout_ms} ms; process {self._holder()} took it last.",
            remedy="Find out what that process is doing, or increase lock_timeout_ms.",
            code="LOCK_TIMEOUT",
        )


def _close_all_in_child() -> None:
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_all_in_child)
