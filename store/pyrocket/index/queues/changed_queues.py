"""Tracks the queues that have changed since the last checkpoint.

A checkpoint flushes queues and saves their ends. Without this module it would have to examine all
queues. Other processes append, too. So a process only knows which queues changed in a log range if
it has written all entries of the range itself.
"""

from threading import Lock

Queue = tuple[str, int]
"""Topic and queue id."""


class ChangedQueues:
    """The queues that have entries in one range of the log. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: dict[Queue, int] = {}
        self._start = self._end = -1
        self._new: dict[Queue, int] | None = None

    def watch(self) -> None:
        """Start collecting queues for `take_new`."""
        with self._lock:
            self._new = self._new or {}

    def take_new(self, dispatched: int) -> list[Queue]:
        """Return the queues with new entries since the last call that are visible to readers."""
        with self._lock:
            known = self._new or {}
            new = [queue for queue, end in known.items() if end <= dispatched]
            for queue in new:
                del known[queue]
            return new

    def begin(self, start: int, end: int) -> None:
        """Record that this process is about to write the entries of the log range [start, end).

        If another process has written the entries before `start`, tracking restarts at `start`.
        """
        with self._lock:
            if not self._start <= start <= self._end:
                self._last.clear()
                self._start = self._end = start
            self._end = max(self._end, end)

    def add(self, topic: str, queue_id: int) -> None:
        """Record that a queue is about to get entries for the current log range."""
        with self._lock:
            self._last[topic, queue_id] = self._end
            if self._new is not None:
                self._new[topic, queue_id] = self._end

    def between(self, start: int, end: int) -> list[Queue] | None:
        """Return the queues with entries in the log range [start, end), and possibly after it.

        Returns None if any queue may have changed.
        """
        with self._lock:
            if start == end:
                return []
            known = self._start <= start and end <= self._end
            return [queue for queue, last in self._last.items() if last > start] if known else None

    def forget_before(self, end: int) -> None:
        """Remove the queues without entries at or after log offset `end`."""
        with self._lock:
            if self._start <= end <= self._end:
                self._last = {queue: last for queue, last in self._last.items() if last > end}
                self._start = end
