"""Checks delayed messages: queue entries of unknown delay levels, and the timer index.

A broker writes the due time into the queue entry of a message with a delay level, but does not
store its levels. Such an entry cannot be derived from the log, so it is accepted unchanged. If
entries of one level have different delays, the check reports a note.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.index.queues.dispatcher import QueuePart, underivable
from pyrocket.metadata.role import RoleFile
from pyrocket.services.delay.timer_index import TimerIndex
from pyrocket.tools.verify.report import Findings, Severity, repair

_MAX_SHOWN = 5
_REBUILD = repair("rebuilds it from the log, as does the next writer that delivers.")
_CHECK_WITH_LEVELS = (
    "Nothing has to be done. To check them, give the broker's messageDelayLevel as --delay-levels."
)

_Progress = Callable[[], tuple[int, int]]
"""Returns the queue offset up to which timers are indexed, and the due time delivered last."""


class DelayCheck:
    """Accepts entries that cannot be derived from the log, and collects their delays.

    levels_given: the caller gave the levels, so every entry can be derived.
    levels_known: the store has levels of its own, so the entries of messages that pyrocket wrote
        can be derived.
    """

    def __init__(self, *, levels_given: bool, levels_known: bool) -> None:
        self._given, self._known = levels_given, levels_known
        self._delays = defaultdict[int, set[int]](set)

    def accept(self, run: RecordFields, part: QueuePart, found: Entries) -> QueuePart:
        """Return the part; due times that cannot be derived are taken from `found`."""
        if self._given or part.topic != SCHEDULE_TOPIC:
            return part
        accepted = underivable(run, part.entries, found, ours_too=not self._known)
        if not accepted.any():
            return part
        at = np.searchsorted(run.physical_offset, part.entries["physical_offset"][accepted])
        delays = found["tags_code"][accepted] - run.store_timestamp[at]
        self._delays[part.queue_id].update(np.unique(delays).tolist())
        return part.keeping(found, accepted)

    def report(self, findings: Findings) -> None:
        """Report the levels whose entries have different delays."""
        for queue_id, delays in sorted(self._delays.items()):
            if len(delays) == 1:
                continue
            shown = ", ".join(f"{delay} ms" for delay in sorted(delays)[:_MAX_SHOWN])
            what = (
                f"its messages wait {shown}{' …' * (len(delays) > _MAX_SHOWN)}: the broker's level"
                f" {queue_id + 1} was changed, or entries are damaged. Their due times were not"
                " checked."
            )
            folder = f"consumequeue/{SCHEDULE_TOPIC}/{queue_id}"
            findings.add("DELAY_LEVELS_UNKNOWN", Severity.NOTE, folder, what, _CHECK_WITH_LEVELS)


def check_timers(
    layout: Layout, findings: Findings, progress: _Progress, *, has_state: bool
) -> None:
    """Compare the timer index with its tally; retry if a delivery changed either of them meanwhile.

    A copy has no timer index until its first writer builds it, a replica until its promotion.
    """
    with suppress(StoreDamagedError):  # A finding of `check_config`.
        if RoleFile(layout).read().primary:
            return
    if layout.timers.exists() and not layout.timers.is_dir():
        return  # A finding of `check_kinds`.
    index = TimerIndex(layout.timers)
    if not has_state and not index.is_there:
        return
    for is_last in (False, False, True):
        before = progress()
        try:
            index.check(index.tally.read(before[0]), before[1], whole=True)
            return
        except StoreDamagedError as error:
            if is_last or progress() == before:
                findings.add(error.code, Severity.WARNING, layout.timers, error.message, _REBUILD)
                return
