"""A client of gRPC that breaks its rules: it announces messages and does not send all of them."""

import socket
import struct
import threading
from collections import Counter
from contextlib import suppress

_DATA, _HEADERS, _RST, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_FRAME_BYTES = 16_384
_INITIAL_WINDOW = 4


class RawConnection:
    """One connection. It sends as much as the server's windows allow, and reads all replies."""

    def __init__(self, address, window=1 << 30):
        """`window` is the number of bytes of each stream that the server may send."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._lock = threading.Condition()
        self._stream_window, self._window = 65_535, 65_535
        self._updates, self._next = Counter(), 1
        self.ended, self.is_closed = set(), False
        self._answered = set()
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self._frame(_SETTINGS, 0, 0, struct.pack("!HI", _INITIAL_WINDOW, window))
        self._frame(_WINDOW_UPDATE, 0, 0, struct.pack("!I", 1 << 30))
        threading.Thread(target=self._read, daemon=True).start()

    def open(self, method, metadata=()):
        """Open a stream for a call of this method, and return its number."""
        fields = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *metadata,
        )
        block = b"".join(map(_literal, fields))
        with self._lock:
            number, self._next = self._next, self._next + 2
            self._frame(_HEADERS, _END_HEADERS, number, block)
        return number

    def send(self, number, data, *, ends=False, timeout=5):
        """Send data of a stream within the windows; return the bytes that were sent in time."""
        sent = 0
        while sent < len(data):
            with self._lock:
                if not self._lock.wait_for(
                    lambda: self._room(number) > 0 or self._over(number), timeout
                ):
                    return sent
                if self._over(number):
                    return sent
                size = min(len(data) - sent, self._room(number), _FRAME_BYTES)
                self._updates[number] -= size
                self._window -= size
                flags = _END_STREAM if ends and sent + size == len(data) else 0
                self._frame(_DATA, flags, number, data[sent : sent + size])
            sent += size
        return sent

    def wait_for_reply(self, number, timeout=5):
        """Wait until a reply of a stream has begun, or the stream has ended."""
        with self._lock:
            self._lock.wait_for(lambda: number in self._answered or self._over(number), timeout)

    def close(self):
        """Close the connection."""
        self.is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _over(self, number):
        return self.is_closed or number in self.ended

    def _room(self, number):
        return min(self._window, self._stream_window + self._updates[number])

    def _frame(self, kind, flags, number, payload):
        header = struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, number)
        with suppress(OSError):
            self._socket.sendall(header + payload)

    def _read(self):
        with suppress(OSError, EOFError), self._socket.makefile("rb") as file:
            while header := file.read(9):
                size, (kind, flags, number) = (
                    int.from_bytes(header[:3], "big"),
                    struct.unpack("!BBI", header[3:]),
                )
                self._received(kind, flags, number, file.read(size))
        with self._lock:
            self.is_closed = True
            self._lock.notify_all()

    def _received(self, kind, flags, number, payload):
        with self._lock:
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                self._acknowledge(kind, payload)
            elif kind == _WINDOW_UPDATE:
                size = struct.unpack("!I", payload)[0]
                self._updates[number] += size if number else 0
                self._window += 0 if number else size
            elif kind == _DATA:
                self._answered.add(number)
            elif kind == _RST or (kind == _HEADERS and flags & _END_STREAM):
                self.ended.add(number)
            self._lock.notify_all()

    def _acknowledge(self, kind, payload):
        if kind == _PING:
            self._frame(_PING, _ACK, 0, payload)
            return
        settings = dict(struct.iter_unpack("!HI", payload))
        self._stream_window = settings.get(_INITIAL_WINDOW, self._stream_window)
        self._frame(_SETTINGS, _ACK, 0, b"")


def _literal(field):
    """Encode a header field without compression; see RFC 7541, 6.2.2."""
    return b"\x00" + b"".join(_text(one.encode()) for one in field)


def _text(text):
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    rest, head = size - 127, b"\x7f"
    while rest >= 128:
        head += bytes([rest % 128 + 128])
        rest //= 128
    return head + bytes([rest]) + text


def announced(size, flag=0):
    """Return the header of a message of this size."""
    return struct.pack("!BI", flag, size)
