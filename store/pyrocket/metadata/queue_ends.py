"""The range of each queue at the last checkpoint or clean shutdown: `pyrocket/ends.json`.

A queue whose last entries are damaged or missing looks like a shorter queue, and its offsets would
be assigned again. A queue whose first files are missing looks as if cleaning had deleted them.
Therefore the first writer to open a store compares the files of each queue with this file. A
recovery that finds a shorter queue reads the whole log.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pyrocket.disk.file_queue import file_name
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import lock_identity
from pyrocket.errors import StoreDamagedError, StorePermissionError, StoreUnavailableError
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS
from pyrocket.formats.queue_entry import ENTRY_BYTES, parse_entries
from pyrocket.index.queues.consume_queue import QueueTable

_log = logging.getLogger(__name__)

EndedAt = Callable[[str, int], int]
_GONE = FileNotFoundError, NotADirectoryError


@dataclass(frozen=True)
class SavedEnds:
    """The content of the file: the ranges of the log and the queues.

    queues: "topic/queue" → [end, modification time of the last file, start of the first file].
    These values are not validated. Files of older releases lack the third value, and `log_start`.
    lock_ns: the modification time of `lock`, which a broker changes.
    """

    log_end: int
    queues: dict[str, Any] = field(default_factory=dict)
    log_start: int = -1
    lock_ns: int = -1

    def least(self) -> dict[tuple[str, int], int]:
        """Return the ends by topic and queue id; empty if the values are invalid.

        A queue is shorter than its saved end only if it lost entries or the log was truncated.
        """
        try:
            return {_key(name): int(end) for name, (end, *_) in self.queues.items()}
        except PARSE_ERRORS:
            return {}

    def ranges(self, log_start: int) -> dict[tuple[str, int], range]:
        """Return the range of queue offsets in each queue's files; empty if values are invalid.

        If the log did not start at `log_start`, cleaning may have deleted the first files of a
        queue. Then each range is empty and starts at the end of the queue.
        """
        try:
            return {
                _key(name): range(
                    first[0] // ENTRY_BYTES if first and log_start == self.log_start else int(end),
                    int(end),
                )
                for name, (end, _, *first) in self.queues.items()
            }
        except PARSE_ERRORS:
            return {}

    def and_later(self, ends: Mapping[tuple[str, int], int]) -> "SavedEnds":
        """Return a copy with later ends of some queues."""
        later = {f"{topic}/{queue_id}": (end, 0) for (topic, queue_id), end in ends.items()}
        return replace(self, queues={**self.queues, **later})


_NOTHING = SavedEnds(0)


class QueueEnds:
    """Reads and writes the file. The file is optional, so an invalid file is ignored."""

    def __init__(self, layout: Layout) -> None:
        self._path, self._scratch = layout.queue_ends, layout.scratch
        self._root, self._lock = layout.consume_queues, layout.lock

    def read(self) -> SavedEnds | None:
        """Return the content of the file; None if it is missing or invalid."""
        try:
            known = decode_own(self._path, read_or_none(self._path) or b"{}")
            start, lock_ns = int(known.get("logStart", -1)), int(known.get("lock", -1))
            return SavedEnds(int(known["logEnd"]), dict(known["queues"]), start, lock_ns)
        except (StoreDamagedError, *PARSE_ERRORS):
            return None

    def durable_end(self) -> int:
        """Return the log offset up to which the log was certainly durable; 0 if unknown.

        It is unknown after a broker has used the store: the broker may have truncated the log.
        """
        saved, lock = self.read(), lock_identity(self._lock)
        return saved.log_end if saved and lock and saved.lock_ns == lock[0] else 0

    def is_valid(self) -> bool:
        """Whether the file is missing, or has valid content."""
        saved = self.read()
        if saved is None:
            return not self._path.exists()
        return len(saved.least()) == len(saved.queues)

    def save(self, queues: QueueTable, ended_at: EndedAt, log: range) -> None:
        """Save the ends of all queues, durably. `log` is the range of the durable log.

        The caller must hold the store lock exclusively, or the flush lock.
        """
        self._write(dict(self._current(queues, queues.on_disk(), ended_at, log)), log)

    def save_changed(
        self,
        queues: QueueTable,
        ended_at: EndedAt,
        log: range,
        changed: Collection[tuple[str, int]] | None,
    ) -> None:
        """Save the ends of the queues `changed` since the last call; with None, of all queues.

        Appends never make a queue shorter, and its start moves only when cleaning moves the start
        of the log. Otherwise a queue that is shorter than saved, or starts later, has lost files:
        its saved values are preserved, so that the next writer detects the loss.
        """
        before = self.read() or SavedEnds(0)
        saved = dict(before.queues)
        cleaned = before.log_start != log.start
        keys = queues.on_disk() if cleaned or changed is None else changed
        for name, entry in self._current(queues, keys, ended_at, log):
            old = saved.get(name, ())
            if entry[0] < _saved(old, 0, invalid=0):
                continue
            start = _saved(entry, 2, invalid=-1)
            lacks_first = not cleaned and start > _saved(old, 2, invalid=-1) >= 0
            if lacks_first and not _is_deleted(name, old, ended_at):
                entry = *entry[:2], old[2]
            saved[name] = entry
        if keys is not changed:
            there = {f"{topic}/{queue_id}" for topic, queue_id in keys}
            for name in [name for name in saved if name not in there]:
                if _is_deleted(name, saved[name], ended_at):
                    del saved[name]
        self._write(saved, log)

    def _current(
        self, queues: QueueTable, keys: Collection[tuple[str, int]], ended_at: EndedAt, log: range
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the name and the values of each queue that has or had entries."""
        for topic, queue_id in keys:
            end = queues.get(topic, queue_id).max_offset(log.stop) or ended_at(topic, queue_id)
            if end:
                name = f"{topic}/{queue_id}"
                file = self._root / _last_file(name, end, queues.file_bytes)
                starts = queues.get(topic, queue_id).run.starts()
                yield name, (end, _changed(file), *starts[:1])

    def _write(self, saved: Mapping[str, Any], log: range) -> None:
        lock = lock_identity(self._lock)
        content = {"logStart": log.start, "logEnd": log.stop, "queues": saved}
        if lock is not None:
            content["lock"] = lock[0]
        replace_file(self._path, encode_own(self._path, content), self._scratch)

    def are_reached(self, saved: SavedEnds, ended_at: EndedAt, file_bytes: int, log: range) -> bool:
        """Whether every queue reaches its saved end; False if the saved values are invalid.

        `log` is the range of the log. If the log still ends at the saved end, each queue must have
        the same files, except for first files that were deleted by cleaning, and the last file must
        be unchanged. This check takes one directory listing and one stat per queue. Otherwise the
        last entry of each queue is read. A queue that was deleted in the meantime has no files and
        continues at its end.
        """
        at_rest, is_cleaned = log.stop == saved.log_end, log.start > saved.log_start
        try:
            for name, (end, changed, *first) in saved.queues.items():
                file = f"{self._root}/{_last_file(name, end, file_bytes)}"
                is_there = (
                    _is_unchanged(file, changed)
                    and _has_all_files(file, file_bytes, *first, later=is_cleaned)
                    if at_rest
                    else _has_entry(file, end)
                )
                if not is_there and ended_at(*_key(name)) < end:
                    return False
        except PARSE_ERRORS:
            return False
        return True


class Shortfall:
    """Logs a warning, once per queue, if a reader finds a queue shorter than its saved end.

    A topic that another program has deleted and created again causes the same warning.
    """

    def __init__(self, layout: Layout) -> None:
        self._root, self._ends = layout.root, QueueEnds(layout)
        self._warned = set[tuple[str, int]]()

    @cached_property
    def _saved(self) -> SavedEnds:
        """The saved ends. The file is optional, so a file that may not be read is ignored."""
        try:
            return self._ends.read() or _NOTHING
        except (OSError, StorePermissionError):
            return _NOTHING

    @cached_property
    def _least(self) -> dict[tuple[str, int], int]:
        return self._saved.least()

    def check(
        self, queue: tuple[str, int], end: int, bound: int, interrupted: Callable[[], int]
    ) -> None:
        """Warn if the queue ends at `end`, but its saved end is later.

        Does nothing if the log is shorter than saved (`bound` is its end): the log was truncated,
        or was extended after the reader read its end. Raises StoreUnavailableError
        (STORE_RECOVERING) if an interrupted recovery has truncated the queue.
        """
        if end >= self._least.get(queue, 0):
            return
        if queue not in self._warned:
            # The log may have been truncated, or extended after this reader read its end. Another
            # thread may do the same at the same time.
            for read_before in ("_saved", "_least"):
                self.__dict__.pop(read_before, None)
        least = self._least.get(queue, 0)
        if end >= least or self._saved.log_end > bound:
            return
        if interrupted():
            raise StoreUnavailableError(
                f"a process was killed while it rebuilt queue {queue[1]} of {queue[0]!r} in"
                f" {self._root}.",
                remedy="Open the store for writing once to recover it.",
                code="STORE_RECOVERING",
            )
        if queue not in self._warned:
            self._warned.add(queue)
            _log.warning(
                "%s: queue %d of %r ends at offset %d, but it ended at %d at the last checkpoint:"
                " it may have lost files. `pyrocket verify` checks this, and opening the store for"
                " writing rebuilds them from the log.",
                *(self._root, queue[1], queue[0], end, least),
            )


def _key(name: str) -> tuple[str, int]:
    topic, _, queue_id = name.rpartition("/")
    return topic, int(queue_id)


def _saved(entry: Any, at: int, invalid: int) -> int:
    """Return a saved value of a queue, or `invalid` if it is missing or invalid."""
    try:
        return int(entry[at])
    except (IndexError, *PARSE_ERRORS):
        return invalid


def _is_deleted(name: str, entry: Any, ended_at: EndedAt) -> bool:
    """Whether a queue was deleted after its values were saved; True if these are invalid."""
    try:
        return ended_at(*_key(name)) >= _saved(entry, 0, invalid=0)
    except PARSE_ERRORS:
        return True


def _last_file(name: str, end: int, file_bytes: int) -> str:
    """Return the path of the file with a queue's last entry, relative to `consumequeue`."""
    position = (end - 1) * ENTRY_BYTES
    return f"{name}/{file_name(position - position % file_bytes)}"


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except _GONE:
        return 0


def _is_unchanged(file: str, changed: int) -> bool:
    try:
        return os.stat(file).st_mtime_ns == changed
    except PermissionError:
        raise
    except OSError:
        return False


def _has_all_files(last: str, file_bytes: int, first: int | None = None, *, later: bool) -> bool:
    """Whether a queue has all files from `first` to `last`; with `later`, it may start later."""
    if first is None:
        return True
    folder, _, start = last.rpartition("/")
    names = os.listdir(folder)
    if later:
        first = max(first, int(min(names)))
    return file_name(first) in names and len(names) == (int(start) - first) // file_bytes + 1


def _has_entry(file: str, end: int) -> bool:
    """Whether the last entry of a queue is present in its last file."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(file, flags)
        try:
            position = (end - 1) * ENTRY_BYTES - int(file.rpartition("/")[2])
            entry = parse_entries(os.pread(descriptor, ENTRY_BYTES, position))
        finally:
            os.close(descriptor)
    except PermissionError:
        raise
    except OSError:
        return False
    return bool(len(entry) and entry["size"][0] > 0)
