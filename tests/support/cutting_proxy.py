"""A TCP proxy for a broker, which closes connections before a reply, or lets them fall silent, for
ever or for a while.
"""

import select
import socket
import threading
from contextlib import contextmanager, suppress

_CHUNK = 1 << 16
_LOOK_S = 0.05


class CuttingProxy:
    """Forwards connections, and closes a connection instead of forwarding every n-th reply.

    A reply is the first data from the broker after a request, so the call may have had its effect.
    With `within`, each chunk of data from the broker is treated as a reply. `every` is 0 for no
    cuts.
    """

    def __init__(self, target, every, *, within=False):
        host, _, port = target.rpartition(":")
        self._target, self._every, self._within = (host, int(port)), every, within
        self._lock, self._replies, self.cuts = threading.Lock(), 0, 0
        self._silenced, self._closed = threading.Event(), threading.Event()
        self._muted, self._open = (), set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self):
        """Stop forwarding on all present connections, which stay open, as behind a lost route."""
        self._silenced.set()
        self._silenced = threading.Event()

    def cut(self):
        """Close all present connections."""
        for connection in [*self._open]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def mute(self, *sides):
        """Hold back what these sides ("client", "broker") send on all connections, until the next
        call, as TCP does behind a lost route.
        """
        self._muted = sides

    def close(self):
        self._closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client):
        with suppress(OSError), client, socket.create_connection(self._target) as broker:
            asked, silenced = False, self._silenced
            self._open.add(client)
            while True:
                sides = {"client": client, "broker": broker}
                muted = self._muted
                heard = [end for side, end in sides.items() if side not in muted]
                ready, _, _ = select.select(heard, [], [], _LOOK_S)
                if silenced.is_set():
                    self._closed.wait()
                    return
                if not ready or muted != self._muted:
                    continue
                if client in ready:
                    data = client.recv(_CHUNK)
                    # HTTP/2 frames without a request, such as pings, are short.
                    asked = asked or len(data) > 64
                    broker.sendall(data)
                if broker in ready:
                    data = broker.recv(_CHUNK)
                    if (asked or self._within) and self._is_cut():
                        return
                    asked = False
                    client.sendall(data)
                if not data:
                    return

    def _is_cut(self):
        with self._lock:
            self._replies += 1
            cut = self._every > 0 and self._replies % self._every == 0
            self.cuts += cut
        return cut


@contextmanager
def cutting(target, every, *, within=False):
    """Run a proxy for the address `target` during the block."""
    proxy = CuttingProxy(target, every, within=within)
    try:
        yield proxy
    finally:
        proxy.close()
