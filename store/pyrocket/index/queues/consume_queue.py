"""The ConsumeQueues: queue offset → (log offset, size, tags code), random access like an array.

Files have their full size, with zeros after the last entry. The end of a queue is found by a search
for the last entry that has a size and whose record precedes a given log offset. Other processes may
append and delete files at any time, so only a hint for the next search is cached.
"""

import itertools
import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

import numpy as np

from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.disk.layout import Layout, listed
from pyrocket.errors import REBUILD_QUEUES, StoreDamagedError, TopicNameError
from pyrocket.formats.queue_entry import (
    ENTRY_BYTES,
    PRE_BLANK_SIZE,
    Entries,
    iter_entries,
    parse_entries,
    pre_blank,
)

_FILES_IN_DOUBT = 3
_NEAR = 64
"""Number of entries that one read returns near the expected end of a queue."""

_WHOLE_LOG = 2**63 - 1


class ConsumeQueue:
    """The entries of one queue of one topic. Safe to share between threads."""

    def __init__(self, topic: str, queue_id: int, run: FileQueue) -> None:
        self.topic, self.queue_id, self.run = topic, queue_id, run
        self._hint = 0

    def max_offset(self, log_end: int) -> int:
        """Return the offset after the last entry with a record before `log_end`, or 0."""
        hint = self._hint
        if hint and self._ends_at(hint, log_end):
            return hint
        low, high = self._bracket(log_end)
        self._hint = low + bisect_left(
            range(low, high), True, key=lambda offset: not self._is_below(offset, log_end)
        )
        return self._hint

    def reached(self, log_end: int) -> int:
        """Return the same as `max_offset`, but 0 if all entries are pre-blank."""
        end = self.max_offset(log_end)
        last = self.entries(max(end - 1, 0), end)
        return end if len(last) and last[0]["size"] != PRE_BLANK_SIZE else 0

    def _ends_at(self, offset: int, log_end: int) -> bool:
        """Whether the entries before and after `offset` show that the queue ends there."""
        try:
            data = self.run.read((offset - 1) * ENTRY_BYTES, 2 * ENTRY_BYTES)
        except FileNotFoundError:
            return False
        if len(data) < 2 * ENTRY_BYTES:
            return False
        (last, last_size, _), (following, following_size, _) = iter_entries(data)
        has_next = following_size > 0 and following < log_end
        return last_size > 0 and last < log_end and not has_next

    def _bracket(self, log_end: int) -> tuple[int, int]:
        """Return a lower and an upper bound for the end of the queue."""
        hint = self._hint
        ahead = self._count_below(hint - 1, log_end) if hint else 0
        if ahead:
            hint, step = hint - 1 + ahead, 1
            if ahead < _NEAR:
                return hint, hint
            while self._is_below(hint + step - 1, log_end):
                hint, step = hint + step, step * 2
            return hint, hint + step - 1
        per_file = self.run.file_bytes // ENTRY_BYTES
        for start in reversed(self.run.starts()):
            first = start // ENTRY_BYTES
            ahead = self._count_below(first, log_end)
            if ahead:
                return first + ahead, first + (per_file if ahead == _NEAR else ahead)
        return 0, 0

    def _count_below(self, offset: int, log_end: int) -> int:
        """Read entries once, starting at `offset`; return the number of those before `log_end`."""
        entries = self.entries(offset, offset + _NEAR)
        below = (entries["size"] > 0) & (entries["physical_offset"] < log_end)
        return [*below.tolist(), False].index(False)

    def _is_below(self, offset: int, log_end: int) -> bool:
        entries = self.entries(offset, offset + 1)
        if not len(entries):
            return False
        entry = entries[0]
        return bool(entry["size"] > 0 and entry["physical_offset"] < log_end)

    def min_offset(self, log_start: int, maximum: int) -> int:
        """Return the offset of the first entry whose record is at or after `log_start`."""
        low, high = self.first_entry(maximum), maximum
        middle = low  # Most queues have lost no messages, so the first entry is tried first.
        while low < high:
            entry = self.entries(middle, middle + 1)
            if not len(entry):  # The topic is being deleted, or the first file was deleted.
                low = self.first_entry(maximum)
                if low <= middle:
                    raise self._lacks(middle)
            elif entry[0]["physical_offset"] >= log_start and entry[0]["size"] != PRE_BLANK_SIZE:
                high = middle
            else:
                low = middle + 1
            middle = (low + high) // 2
        return min(low, maximum)

    def _lacks(self, offset: int) -> StoreDamagedError:
        position = self.run.start_of(offset * ENTRY_BYTES)
        return StoreDamagedError(
            f"the file {file_name(position)} of queue {self.queue_id} of {self.topic!r} is"
            " short or missing.",
            remedy=REBUILD_QUEUES,
        )

    def first_entry(self, maximum: int) -> int:
        """Return the start offset of the first file, or `maximum` without files."""
        starts = self.run.starts()
        return starts[0] // ENTRY_BYTES if starts else maximum

    def files_below(self, log_start: int, *, grows: bool = False) -> list[int]:
        """Return the files whose records all precede `log_start`.

        The file with the last entry is always kept, because it determines the next offset. `grows`
        means that another entry is appended before the files are deleted.
        """
        end, starts = self.max_offset(_WHOLE_LOG) + grows, []
        for start in self.run.starts():
            next_first = (start + self.run.file_bytes) // ENTRY_BYTES
            last = self.entries(next_first - 1, next_first)
            if next_first >= end or not last.size or last["physical_offset"][0] >= log_start:
                break
            starts.append(start)
        return starts

    def entries(self, start: int, end: int) -> Entries:
        """Return the entries [start, end), fewer if a file is missing or too short."""
        parts = []
        position, stop = start * ENTRY_BYTES, end * ENTRY_BYTES
        while position < stop:
            file_end = self.run.start_of(position) + self.run.file_bytes
            try:
                data = self.run.read(position, min(stop, file_end) - position)
            except FileNotFoundError:
                break
            parts.append(data)
            if len(data) < min(stop, file_end) - position:
                break  # The next file does not continue here.
            position = file_end
        return parse_entries(parts[0] if len(parts) == 1 else b"".join(parts))

    def put(self, first: int, entries: Entries, maximum: int, *, again: bool = False) -> None:
        """Write entries, starting at queue offset `first`, to a queue that ends at `maximum`.

        Entries before `maximum` are skipped. With `again`, entries that the files already contain
        are not rewritten, so the files keep their times. Raises StoreDamagedError (QUEUE_GAP).
        """
        if first > maximum:
            raise StoreDamagedError(
                f"queue {self.queue_id} of {self.topic!r} ends at {maximum}, but the log"
                f" continues with {first}.",
                remedy=REBUILD_QUEUES,
                code="QUEUE_GAP",
            )
        data = memoryview(entries[maximum - first :].tobytes())
        position = maximum * ENTRY_BYTES
        while data:
            start = self.run.start_of(position)
            part = data[: start + self.run.file_bytes - position]
            if not (again and self._holds(position, part)):
                self._write(start, position, part)
            data, position = data[len(part) :], position + len(part)
        self._hint = max(maximum, first + len(entries))

    def _holds(self, position: int, part: memoryview) -> bool:
        try:
            return self.run.read(position, len(part)) == part
        except FileNotFoundError:
            return False

    def drop_if_older(self, physical_offset: int) -> bool:
        """Delete all files if the first record precedes `physical_offset`; return True then."""
        starts = self.run.starts()
        if not starts or not self._is_below(starts[0] // ENTRY_BYTES, physical_offset):
            return False
        self.drop()
        return True

    def drop(self) -> None:
        for start in reversed(self.run.starts()):
            self.run.remove(start)
        self._hint = 0

    def last_entry(self) -> tuple[int, int] | None:
        """Return log offset and size of the last valid entry."""
        end = self._sound_end(_WHOLE_LOG)
        for last in self.entries(max(end - 1, 0), end):
            return int(last["physical_offset"]), int(last["size"])
        return None

    def _write(self, start: int, position: int, part: memoryview) -> None:
        try:
            self.run.write(position, part)
        except FileNotFoundError:
            if position == start or self.run.starts():
                self.run.write_or_create(position, part)
                return
            # The first file of a queue that does not start at 0 is created with its contents,
            # because a queue must never end with pre-blank entries.
            lead = pre_blank((position - start) // ENTRY_BYTES)
            self.run.create(start, lead + bytes(part))

    def cut(self, log_end: int, *, at_gap: bool = True) -> int:
        """Truncate the queue durably at its first invalid entry; return its new end.

        After a crash, entries may be torn, missing or ahead of the log. As in RocketMQ only the
        last three files are checked; earlier files were durable before the crash. With `at_gap`,
        entries after a missing file are also invalid; the caller rebuilds them from the log.
        """
        end = self._sound_end(log_end, at_gap=at_gap)
        position = end * ENTRY_BYTES
        # In descending order, so that a crash leaves no hole.
        for start in reversed(self.run.starts()):
            if start >= position:
                self.run.remove(start)
            elif start + self.run.file_bytes > position:
                self.run.zero(position, start + self.run.file_bytes)
                self.run.sync(start, start + 1)
        self._hint = 0
        return end

    def has_entries_after_damage(self, log_end: int, before: int, *, at_gap: bool = True) -> bool:
        """Whether `cut` would remove entries of records before log offset `before`."""
        end = self._sound_end(log_end, at_gap=at_gap)
        for start in self.run.starts():
            first = start // ENTRY_BYTES
            stop = first + self.run.file_bytes // ENTRY_BYTES
            if stop > end:
                rest = self.entries(max(first, end), stop)
                used = (rest["size"] > 0) & (rest["size"] != PRE_BLANK_SIZE)
                if (used & (rest["physical_offset"] < before)).any():
                    return True
        return False

    def _sound_end(self, log_end: int, *, at_gap: bool = True) -> int:
        """Return the end of the valid entries: ascending, with records that end by `log_end`."""
        starts = self._files_in_doubt(log_end, at_gap)
        end, record_end = (starts[0] // ENTRY_BYTES if starts else 0), -1
        for start in starts:
            first = start // ENTRY_BYTES
            entries = self.entries(first, first + self.run.file_bytes // ENTRY_BYTES)
            blank = entries["size"] == PRE_BLANK_SIZE
            offsets = entries["physical_offset"].astype(np.int64)
            ends = np.where(blank, 0, offsets + entries["size"])
            before = np.concatenate(([record_end], ends[:-1]))
            sound = (entries["size"] > 0) & (offsets >= before) & (ends <= log_end)
            sound &= blank | (ends > offsets)  # The sum did not overflow.
            count = len(sound) if sound.all() else int(np.argmin(sound))
            if count and not blank[count - 1]:
                end, record_end = first + count, int(ends[count - 1])
            if count < len(sound):
                break
        return end

    def _files_in_doubt(self, log_end: int, at_gap: bool) -> list[int]:
        """Return the start offsets of the last three files, or more if they start after `log_end`.

        With `at_gap`, only files before a missing one are considered.
        """
        known = starts = self.run.starts()
        if at_gap:
            due = itertools.count(starts[0] if starts else 0, self.run.file_bytes)
            known = [start for start, wanted in zip(starts, due, strict=False) if start == wanted]
        first = max(0, len(known) - _FILES_IN_DOUBT)
        while first and not self._is_below(known[first] // ENTRY_BYTES, log_end):
            first -= 1
        return known[first:]


_MAX_OPEN = 64
"""Number of queues with open files (up to four each); a process has about 1,000 descriptors."""

_MAX_NAME_BYTES = 255
_MAX_CLOSED = 4096
"""Number of closed queues whose hints are cached."""


class QueueTable:
    """Returns ConsumeQueues and keeps recently used ones open. Safe to share between threads."""

    def __init__(
        self,
        layout: Layout,
        file_bytes: int,
        *,
        writable: bool,
        run_type: type[FileQueue] = FileQueue,
        section: Callable[[], int] = lambda: 0,
    ) -> None:
        """`run_type` and `section` are used for the files of each queue."""
        self._run_type, self._section = run_type, section
        self._layout, self.file_bytes, self._writable = layout, file_bytes, writable
        self._open: OrderedDict[tuple[str, int], ConsumeQueue] = OrderedDict()
        self._closed: OrderedDict[tuple[str, int], ConsumeQueue] = OrderedDict()
        self._lock = Lock()

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue; it may have no files yet."""
        with self._lock:
            key = topic, queue_id
            queue = self._open.pop(key, None) or self._closed.pop(key, None) or self._make(*key)
            self._open[key] = queue
            if len(self._open) > _MAX_OPEN:
                oldest, closing = self._open.popitem(last=False)
                closing.run.close()
                self._closed[oldest] = closing
            if len(self._closed) > _MAX_CLOSED:
                self._closed.popitem(last=False)
            return queue

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        _check_folder_name(topic)
        folder, scratch = self._layout.consume_queue(topic, queue_id), self._layout.scratch
        run = self._run_type(
            folder, self.file_bytes, scratch, writable=self._writable, section=self._section
        )
        return ConsumeQueue(topic, queue_id, run)

    def on_disk(self) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue that has a folder."""
        return sorted(
            (topic.name, int(queue.name))
            for topic in listed(self._layout.consume_queues)
            for queue in listed(topic)
            if queue.name.isascii() and queue.name.isdigit() and queue.is_dir()
        )

    def of_topic(self, topic: str) -> list[int]:
        """Return the ids of the topic's queues that have a folder."""
        names = (entry.name for entry in listed(self._layout.topic_queues(topic)))
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def close(self) -> None:
        """Close all files. Queues that were returned reopen their files when they are used.

        The queues stay in the table, because another thread may be using one. If a second object
        for the same files were created, it would not see the writes of the first one, and the first
        one would never be closed.
        """
        with self._lock:
            for queue in (*self._open.values(), *self._closed.values()):
                queue.run.close()
            self._closed.update(self._open)
            self._open.clear()
            while len(self._closed) > _MAX_CLOSED:
                self._closed.popitem(last=False)


def _check_folder_name(topic: str) -> None:
    """Raise TopicNameError if the topic, which may be unknown, cannot be the name of a folder."""
    try:
        length = len(os.fsencode(topic))
    except UnicodeEncodeError:
        length = 0
    if topic in (".", "..") or {"/", "\0"} & set(topic) or not 0 < length <= _MAX_NAME_BYTES:
        raise TopicNameError(
            f"{topic!r} is not a legal topic name.",
            remedy="Use the name of a topic, such as `store.topics.all()` returns.",
        )
