"""Records batches without rows in a marker file per query, `pyrocket/sink/<32 hex digits>`.

Such a batch appends nothing, so the log alone cannot distinguish it from a missing batch. The
marker contains the number of the last empty batch after the last batch with rows; each write
replaces the previous number. While the store is in use, markers are not flushed, so a power failure
may lose the last markers. Therefore `unclean.json` in the same folder contains the time of the last
crash of the machine: a gap after a marker from before the crash need not be a loss. A clean
shutdown flushes the markers.
"""

import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from pyrocket.base.clock import Clock
from pyrocket.disk import io
from pyrocket.disk.layout import Layout, listed
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS, describe_error

_log = logging.getLogger(__name__)
_FILE_BYTES = 256
"""Length of every marker, so that one write replaces the previous marker."""

_MARKER = Path("empty.json")
"""The name of markers in `base.versions`; on disk, a marker is named after its query's key."""


@dataclass(frozen=True)
class EmptyBatchMarker:
    """after: the last batch with rows; -1 for none. last: the newest batch without rows."""

    after: int
    last: int
    time_ms: int


@dataclass(frozen=True)
class UncleanEnd:
    """When the machine last crashed while the store was in use."""

    time_ms: int


_Content = TypeVar("_Content", EmptyBatchMarker, UncleanEnd)


class EmptyBatches:
    """The markers of one store. They need no lock, because each query has its own file."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._folder, self._scratch, self._clock = layout.sink_markers, layout.scratch, clock
        self._unclean, self._in_use = layout.unclean_end, layout.abort

    def of(self, key: str) -> EmptyBatchMarker | None:
        """Return the marker of a query, or None if it is missing or cannot be read."""
        return _read(self._folder / key, EmptyBatchMarker, _MARKER)

    def record(self, key: str, after: int, last: int) -> None:
        """Record that the batches up to `last` had no rows. Raises OSError."""
        marker = EmptyBatchMarker(after, last, self._clock())
        data = encode_own(_MARKER, asdict(marker)).ljust(_FILE_BYTES)
        io.make_directory(self._folder)
        with io.opened(self._folder / key, os.O_WRONLY | os.O_CREAT) as descriptor:
            io.write_at(descriptor, data, 0)
            if not self._in_use.exists():
                io.sync(descriptor)
                io.sync_directory(self._folder)

    def sync(self) -> None:
        """Flush all markers, before a clean shutdown. Raises OSError."""
        for path in listed(self._folder):
            io.sync_file(path)
        if self._folder.is_dir():
            io.sync_directory(self._folder)

    def forget(self, oldest_ms: int) -> None:
        """Delete markers older than `oldest_ms`; the caller must hold the write lock."""
        for path in listed(self._folder):
            marker = _read(path, EmptyBatchMarker, _MARKER) if path != self._unclean else None
            if marker is not None and marker.time_ms < oldest_ms:
                io.unlink(path)

    def record_unclean_end(self, time_ms: int) -> None:
        """Record durably that the machine crashed; the caller must hold the write lock.

        A store without a folder of markers cannot have lost a marker: the folder is made durable
        before the first marker is written.
        """
        if not self._folder.is_dir():
            return
        data = encode_own(self._unclean, asdict(UncleanEnd(time_ms)))
        io.replace_file(self._unclean, data, self._scratch)

    def ended_uncleanly_since(self, time_ms: int) -> bool:
        """Return whether the machine crashed while the store was in use, at that time or later."""
        end = _read(self._unclean, UncleanEnd, self._unclean)
        return end is not None and end.time_ms >= time_ms


def _read(path: Path, kind: type[_Content], name: Path) -> _Content | None:
    data = io.read_hint(path, io.SMALL_FILE_BYTES)
    if data is None:
        return None
    try:
        return kind(**{field: int(value) for field, value in decode_own(name, data).items()})
    except PARSE_ERRORS as error:
        _log.warning("%s is ignored: %s", path, describe_error(error))
        return None
