"""The index of timers that wait holds all of them."""

from collections.abc import Callable

from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.services.delay.timer_store import TimerBuckets
from pyrocket.tools.verify.finding import Findings, Severity, repair

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
    buckets, error = TimerBuckets(layout.timers), None
    if not state_is_valid and not buckets.is_there:
        return
    for _ in range(3):
        before = progress()
        try:
            buckets.check(buckets.tally.read(before[0]), before[1], whole=True)
            return
        except StoreDamagedError as found:
            error = found
        if progress() == before:
            break
    if error is not None:
        file = str(layout.timers.relative_to(layout.root))
        findings.add(error.code, Severity.WARNING, file, error.message, _REBUILD)
