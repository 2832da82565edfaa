"""Splits the bytes of a connection into frames."""

from collections.abc import Iterator

import numpy as np

from pyrocket.remoting.frames import LENGTH_BYTES, MAX_FRAME_BYTES, Frame, FrameError, decode_frame

_BUFFER_BYTES = 1 << 20


class FrameReader:
    """The bytes of one connection.

    A caller receives into `room`, and passes the number of bytes to `received`. Memory is never
    written twice, so that the bodies of frames stay valid and are not copied. At most one buffer of
    the size of the largest frame is allocated in advance.
    """

    def __init__(self) -> None:
        self._buffer = _new_buffer(_BUFFER_BYTES)
        self._start = self._end = 0

    @property
    def begun(self) -> memoryview:
        """The bytes of a frame that is not complete."""
        return self._buffer[self._start : self._end]

    def room(self) -> memoryview:
        """Return the memory for the next bytes, which is not empty. Raises FrameError."""
        begun = self.begun
        needed = 2 * LENGTH_BYTES
        if len(begun) >= LENGTH_BYTES:
            needed = LENGTH_BYTES + _length(begun)
        if self._start + max(needed, len(begun) + 1) > len(self._buffer):
            new = _new_buffer(max(_BUFFER_BYTES, needed))
            new[: len(begun)] = begun
            self._buffer, self._start, self._end = new, 0, len(begun)
        return self._buffer[self._end :]

    def received(self, count: int) -> Iterator[Frame]:
        """Yield the frames that are complete with `count` more bytes in `room`.

        Raises FrameError; the connection is of no use then.
        """
        self._end += count
        while self._end - self._start >= LENGTH_BYTES:
            first = self._start + LENGTH_BYTES
            last = first + _length(self._buffer[self._start : first])
            if last > self._end:
                return
            self._start = last
            yield decode_frame(self._buffer[first:last])


def _length(begun: memoryview) -> int:
    """Return the length of a frame without the length itself. Raises FrameError."""
    length = int.from_bytes(begun[:LENGTH_BYTES], "big", signed=True)
    if not LENGTH_BYTES <= length <= MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {length} bytes")
    return length


def _new_buffer(size: int) -> memoryview:
    """Return memory that is not initialised, because it is written before it is read."""
    return np.empty(size, np.uint8).data
