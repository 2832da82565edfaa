"""`pyrocket/broker.json`: the process that serves the store, and the addresses that it listens on.

The file exists while a broker runs, and after a broker was killed. Whether the broker still runs is
determined by its process and by the lock on the store, which the kernel releases: another process
may have the id by now, as always in containers.
"""

import os
from dataclasses import asdict, dataclass

from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import is_locked
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS


@dataclass(frozen=True)
class RunningBroker:
    """A broker: its process, the addresses for clients, and the address for metrics or ""."""

    pid: int
    listen: list[str]
    metrics: str = ""

    def __str__(self) -> str:
        """Return the description of the broker for errors."""
        return f"the broker with process {self.pid}, which listens on {', '.join(self.listen)}"


class BrokerFile:
    """The file of one store. Each call reads the file."""

    def __init__(self, layout: Layout) -> None:
        self._path, self._scratch, self._lock = layout.broker, layout.scratch, layout.lock

    def read(self) -> RunningBroker | None:
        """Return the broker; None if there is none, or if it no longer runs."""
        try:
            data = io.read_hint(self._path, io.SMALL_FILE_BYTES)
            content = None if data is None else decode_own(self._path, data)
            broker = None if content is None else RunningBroker(**content)
        except (OSError, *PARSE_ERRORS):
            return None
        if broker is None or not _runs(broker.pid) or is_locked(self._lock) is False:
            return None
        return broker

    def write(self, broker: RunningBroker) -> None:
        """Record a broker that starts to serve the store."""
        io.replace_file(self._path, encode_own(self._path, asdict(broker)), self._scratch)

    def delete(self) -> None:
        """Delete the file of a broker that stops."""
        io.unlink(self._path)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
