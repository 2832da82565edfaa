"""All queues of a store."""

import os
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import Layout, listed
from pyrocket.errors import TopicNameError
from pyrocket.index.queues.consume_queue import ConsumeQueue

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
        names = (each.name for each in listed(self._layout.topic_queues(topic)))
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
    """Raise TopicNameError if the topic cannot be the name of a folder.

    The topic may be missing in the topic table.
    """
    try:
        length = len(os.fsencode(topic))
    except UnicodeEncodeError:
        length = 0
    if topic in (".", "..") or {"/", "\0"} & set(topic) or not 0 < length <= _MAX_NAME_BYTES:
        raise TopicNameError(
            f"{topic!r} is not a legal topic name.",
            remedy="Use the name of a topic, such as `store.topics.all()` returns.",
        )
