"""Whether a log's records go on one by one in their queues.

What lies behind the durable end of a log may be left over from an earlier end: whole records that
no queue ever had in this order. RocketMQ does not look; rebuilding queues from such records fails.
"""

from collections.abc import Callable

import numpy as np

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.queues.dispatcher import queue_rows

SYS_INNER_BATCH = 0xC0
"""5.x: one record that takes several queue offsets."""


class OffsetContinuity:
    """Follows a log from some record on; the first of each queue may have any offset."""

    def __init__(self, first_offset: Callable[[str, int], int]) -> None:
        self._first_offset = first_offset
        self._next: dict[tuple[str, int], int] = {}

    def follow(self, run: RecordFields) -> int:
        """Return how many records of the next run, the first ones, go on in their queues.

        A queue goes on with the next offset, or at 0: so does Java with a topic that was deleted
        and made again. What lies before the end of a deleted topic of ours counts without a look.
        """
        good = len(run)
        for queue, rows in queue_rows(run):
            if (run.sys_flag[rows] & SYS_INNER_BATCH).any():
                self._next.pop(queue, None)
                continue
            good = min(good, self._first_bad(queue, rows, run.queue_offset[rows], len(run)))
        return good

    def _first_bad(self, queue: tuple[str, int], rows: Ints, offsets: Ints, none: int) -> int:
        begin = self._first_offset(*queue)
        alive = offsets >= begin
        rows, offsets = rows[alive], offsets[alive]
        if not len(rows):
            return none
        before = np.concatenate(([self._next.get(queue, offsets[0]) - 1], offsets[:-1]))
        sound = offsets == before + 1
        if not begin:
            sound |= offsets == 0
        self._next[queue] = int(offsets[-1]) + 1
        return none if sound.all() else int(rows[int(np.argmin(sound))])
