"""Simulates the death of a process at a disk operation, within this process."""

import threading

from pyrocket.disk import io

STEPS = ("write_at", "rename", "unlink", "set_length", "make_directory", "sync_directory")


class DeathError(BaseException):
    """Raised instead of the process's death: the store handles no such exception."""


class DyingAt:
    """Raise Killed in this thread at its disk operation number `step`, or with `half` after half of
    the operation. Other threads, such as those that flush, continue.
    """

    def __init__(self, patch, step, half):
        self._taken, self._step, self._half = [], step, half
        self._thread = threading.get_ident()
        for name in STEPS:
            patch.setattr(io, name, self.instead(name, getattr(io, name)))

    def instead(self, name, real):
        """Return an operation that counts its calls and raises Killed at the chosen call."""

        def operation(*given):
            if self._counts(name):
                if len(self._taken) == self._step:
                    if self._half:
                        descriptor, data, at = given
                        real(descriptor, memoryview(data).cast("B")[: len(data) // 2], at)
                    raise DeathError
                self._taken.append(name)
            return real(*given)

        return operation

    def _counts(self, name):
        return threading.get_ident() == self._thread and (name == "write_at" or not self._half)
