"""Writes staged files that clients of a broker upload block by block.

Each file has a journal, `name.uploaded`, with a line of JSON for each block written: the index
entries of the block's records. A client that gets no reply sends the block again, to the same or a
restarted broker; a block in the journal is not written again.
"""

import json
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from pyrocket.base.clock import Clock
from pyrocket.disk import io
from pyrocket.errors import SinkError, StoreUnavailableError
from pyrocket.formats.fastjson import PARSE_ERRORS
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.staged_block import BlockIndex
from pyrocket.services.sink.staged_file import StagedFileWriter
from pyrocket.services.sink.staging import StagingArea, check_staged_name, failing_whole
from pyrocket.values.sink import Staged

_JOURNAL = ".uploaded"
_MAX_KNOWN = 1000
_LOCKS = 64
_SIZE_SECONDS = 1.0
NO_LIMIT = 2**63


class _Journal:
    """The index entries of the blocks written to one file."""

    def __init__(self, path: Path) -> None:
        self._path, self.blocks, self._end = path, list[list[BlockIndex]](), 0
        self.is_complete = False
        # A line without a newline was not acknowledged.
        try:
            for line in re.findall(rb"[^\n]*\n", io.read_hint(path) or b""):
                self.blocks.append([BlockIndex(**entry) for entry in json.loads(line)])
                self._end += len(line)
        except (*PARSE_ERRORS, RecursionError):
            self.blocks, self._end = [], 0  # The next block is then UPLOAD_LOST.

    @property
    def entries(self) -> list[BlockIndex]:
        """The index entries of all records."""
        return [entry for block in self.blocks for entry in block]

    def add(self, entries: Sequence[BlockIndex]) -> None:
        """Write the line of a block. Raises OSError."""
        line = json.dumps([asdict(entry) for entry in entries]).encode() + b"\n"
        with io.opened(self._path, os.O_WRONLY | os.O_CREAT) as descriptor:
            io.write_at(descriptor, line, self._end)
        self._end += len(line)
        self.blocks.append([*entries])


class Uploads:
    """The uploads into one staging area. Thread-safe."""

    def __init__(self, area: StagingArea, clock: Clock) -> None:
        self._area, self._clock, self._max_bytes = area, clock, NO_LIMIT
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._known = OrderedDict[str, _Journal]()
        self._staged, self._measured_at = 0, 0.0

    def limit(self, max_bytes: int) -> None:
        """Set the maximum bytes of rows that are staged but not published."""
        self._max_bytes = max_bytes

    def add(self, name: str, number: int, batches: Sequence[EncodedBatch]) -> None:
        """Write block `number` of a file; block 0 creates it. A block is written only once.

        Raises SinkError (UPLOAD_LOST) if the blocks before it are missing, StoreUnavailableError
        (STAGING_FULL).
        """
        with failing_whole(self._area.root), self._lock(name):
            journal = self._journal(name)
            if number < len(journal.blocks):
                return
            if number > len(journal.blocks) or journal.is_complete:
                raise _lost(name)
            self._check_room(sum(batch.data.size for batch in batches))
            with closing(self._writer(name, journal)) as writer:
                before = len(writer.blocks)
                for batch in batches:
                    writer.add(batch)
            journal.add(writer.blocks[before:])

    def finish(self, name: str, blocks: int) -> tuple[int, int]:
        """Complete a file of `blocks` blocks; return its length and checksum. Idempotent."""
        with failing_whole(self._area.root):
            end = self._finish(name, blocks)
            self._area.set_time(name, self._clock())
        return end

    def check(self, staged: Staged) -> None:
        """Raise SinkError (STAGED_BROKEN) unless `finish` returns the same length and checksum.

        This detects messages crafted to contain the index of other records. A missing file is
        reported by the publisher instead.
        """
        name = staged.name
        with failing_whole(self._area.root):
            if not self._area.path(name).exists():
                return
            with self._lock(name):
                blocks = len(self._journal(name).blocks)
            end = self._finish(name, blocks)
        if end != (staged.file_bytes, staged.checksum):
            raise SinkError(
                f"the staged file {name} differs from the completed upload.",
                remedy="Run the write again: nothing of it has been published.",
                code="STAGED_BROKEN",
            )

    def _finish(self, name: str, blocks: int) -> tuple[int, int]:
        with self._lock(name):
            journal = self._journal(name)
            if not blocks or blocks != len(journal.blocks):
                raise _lost(name)
            journal.is_complete = True
            with closing(self._writer(name, journal)) as writer:
                return writer.finish()

    def _lock(self, name: str) -> threading.Lock:
        check_staged_name(name)
        return self._locks[hash(name) % _LOCKS]

    def _journal(self, name: str) -> _Journal:
        path = self._area.path(name)
        journal = self._known.pop(name, None)
        if journal is None or not path.exists():
            journal = _Journal(path.with_name(path.name + _JOURNAL))
        if journal.blocks and not path.exists():
            raise _lost(name)
        self._known[name] = journal
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        return journal

    def _writer(self, name: str, journal: _Journal) -> StagedFileWriter:
        return StagedFileWriter(self._area.path(name), self._area.open(name), journal.entries)

    def _check_room(self, size: int) -> None:
        if time.monotonic() - self._measured_at > _SIZE_SECONDS:
            self._staged, self._measured_at = self._area.bytes, time.monotonic()
        if self._staged + size > self._max_bytes:
            raise StoreUnavailableError(
                f"{self._staged} bytes of rows are staged but not published; the maximum is"
                f" {self._max_bytes}.",
                remedy="Write smaller batches or fewer at a time, or raise the broker's limit.",
                code="STAGING_FULL",
            )
        self._staged += size


def _lost(name: str) -> SinkError:
    return SinkError(
        f"the broker does not have the rows that were staged before in {name}: they were deleted,"
        " or lost by a crash of its machine.",
        remedy="Run the write again: nothing of it has been published.",
        code="UPLOAD_LOST",
    )
