"""Entries of messages by delay level whose levels are not the store's own.

A broker writes into them when a message is due, by levels that it keeps nowhere: such an entry is
taken as it is. Where those of one level wait for different times, that is noted.
"""

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.index.queues.dispatcher import QueuePart, underivable
from pyrocket.services.delay.timer_index import TimerIndex
from pyrocket.tools.verify.finding import Findings, Severity, repair

_TOLD_MOST = 5


class DelayCheck:
    """Takes entries as they are that it can't derive, and keeps what they wait.

    With `given` levels it derives all; without `known` ones none, not even of our own messages.
    """

    def __init__(self, *, given: bool, known: bool) -> None:
        self._given, self._known = given, known
        self._delays = defaultdict[int, set[int]](set)

    def adopt(self, run: RecordFields, part: QueuePart, found: Entries) -> QueuePart:
        """Return the part of a run with the due times that were found, where others made them."""
        if self._given or part.topic != SCHEDULE_TOPIC:
            return part
        theirs = underivable(run, part.entries, found, ours_too=not self._known)
        if not theirs.any():
            return part
        at = np.searchsorted(run.physical_offset, part.entries["physical_offset"][theirs])
        delays = found["tags_code"][theirs] - run.store_timestamp[at]
        self._delays[part.queue_id].update(np.unique(delays).tolist())
        return part.keeping(found, theirs)

    def report(self, findings: Findings) -> None:
        """Note the levels whose entries do not agree."""
        for queue_id, delays in sorted(self._delays.items()):
            if len(delays) == 1:
                continue
            texts = [f"{delay} ms" for delay in sorted(delays)[:_TOLD_MOST]]
            findings.add(
                "DELAY_LEVELS_UNKNOWN",
                Severity.NOTE,
                f"consumequeue/{SCHEDULE_TOPIC}/{queue_id}",
                f"its messages wait {', '.join(texts)}{' …' * (len(delays) > _TOLD_MOST)}: the"
                f" broker's level {queue_id + 1} was changed, or entries are damaged. When they are"
                " due was not checked.",
                "Nothing has to be done; with --delay-levels, the broker's messageDelayLevel, it is"
                " checked.",
            )


_REBUILD = repair("builds it anew from the log; so does the next writer that delivers.")

Progress = Callable[[], tuple[int, int]]
"""Returns up to which queue offset timers are taken in, and up to which due time delivered."""


def check_timers(
    layout: Layout, findings: Findings, progress: Progress, *, state_is_valid: bool
) -> None:
    """Compare the buckets with their tally; what changed meanwhile is looked at again.

    A copy has no buckets before its first writer makes them, which then reads the queue.
    """
    if layout.timers.exists() and not layout.timers.is_dir():
        return  # That is a finding of its own.
    index, error = TimerIndex(layout.timers), None
    if not state_is_valid and not index.is_there:
        return
    for _ in range(3):
        before = progress()
        try:
            index.check(index.tally.read(before[0]), before[1], whole=True)
            return
        except StoreDamagedError as found:
            error = found
        if progress() == before:
            break
    if error is not None:
        file = str(layout.timers.relative_to(layout.root))
        findings.add(error.code, Severity.WARNING, file, error.message, _REBUILD)
