"""Where the queues ended when the store was last closed cleanly: `pyrocket/ends.json`.

A queue whose last entries are damaged or gone looks like a shorter one, and its offsets would be
given again. A recovery that finds a queue shorter than it was looks at the whole log.
"""

import json
from collections.abc import Mapping

from pyrocket.disk.durable import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.formats.fastjson import BROKEN, int_keys

Ends = dict[tuple[str, int], int]


class QueueEnds:
    """Reads and writes the file; one that makes no sense says nothing: it is but a hint."""

    def __init__(self, layout: Layout) -> None:
        self._path, self._scratch = layout.queue_ends, layout.scratch

    def read(self) -> Ends:
        """Return the ends by topic and queue id."""
        try:
            known = json.loads(read_or_none(self._path) or b"{}").items()
            topics = {name: int_keys(ends) for name, ends in known}
        except BROKEN:
            return {}
        return {(name, at): end for name, ends in topics.items() for at, end in ends.items()}

    def note(self, queue_ends: Mapping[tuple[str, int], int]) -> None:
        """Replace what is noted, durably; the caller holds the mutex."""
        ends: dict[str, dict[int, int]] = {}
        for (topic, queue_id), end in queue_ends.items():
            ends.setdefault(topic, {})[queue_id] = end
        replace_file(self._path, json.dumps(ends, sort_keys=True).encode(), self._scratch)
