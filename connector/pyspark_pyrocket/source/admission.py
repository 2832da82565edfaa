"""When a stream's next micro-batch begins, and how much it takes: all limits together.

Spark has no way to say several limits at once, so they are kept here, and used unless it asks for
everything. The smallest one counts.
"""

from typing import Protocol

from pyspark_pyrocket.options.batching import Admission
from pyspark_pyrocket.options.positions import QueueNumbers
from pyspark_pyrocket.source.rate_limit import backlog_of, take_bytes, take_rows
from pyspark_pyrocket.source.sizes import Sizes
from pyspark_pyrocket.worker import LOG


class Measured(Protocol):
    """A store: what it knows of bytes, and its time."""

    @property
    def raw(self) -> Sizes:
        """What it knows of bytes."""
        ...

    def now(self) -> int:
        """Return the time in epoch milliseconds."""
        ...


class Intake:
    """What one query has taken, and when. The first micro-batch of a run waits for nothing."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._last_ms: int | None = None
        self._holds = self._limits = False

    def take(
        self, store: Measured, start: QueueNumbers, end: QueueNumbers, *, waits: bool = True
    ) -> QueueNumbers:
        """Return where a micro-batch from `start` ends that could go to `end`.

        That is `start` if there is too little for one yet, which only counts if it `waits`.
        """
        backlog = backlog_of(start, end)
        self._holds = waits and backlog > 0 and self._has_to_wait(store, backlog)
        if self._holds:
            return start
        taken = self._limit(store, start, end)
        if backlog:
            self._last_ms = store.now()
            self._log_limit(backlog, backlog_of(start, taken))
        return taken

    def is_over(self, store: Measured) -> bool:
        """Whether messages were held back and have waited long enough, with nothing new since."""
        return self._holds and not self._is_early(store)

    def _has_to_wait(self, store: Measured, backlog: int) -> bool:
        return backlog < (self._admission.min_rows or 0) and self._is_early(store)

    def _is_early(self, store: Measured) -> bool:
        # A clock that was set back must not hold anything up for long.
        since = -1 if self._last_ms is None else store.now() - self._last_ms
        return 0 <= since < self._admission.max_delay_ms

    def _limit(self, store: Measured, start: QueueNumbers, end: QueueNumbers) -> QueueNumbers:
        limits = self._admission
        if limits.max_rows is not None:
            end = take_rows(start, end, limits.max_rows)
        if limits.max_bytes is not None:
            end = take_bytes(start, end, limits.max_bytes, store.raw)
        return end

    def _log_limit(self, backlog: int, taken: int) -> None:
        """Say when a limit begins to hold messages back, and when it no longer does."""
        limits = taken < backlog
        if limits and not self._limits:
            LOG.info(
                "%d messages wait, and a micro-batch takes %s: the next one has %d",
                backlog,
                self._admission.describe(),
                taken,
            )
        elif self._limits and not limits:
            LOG.info("the backlog has been read: a micro-batch takes all there is again")
        self._limits = limits
