"""A Spark listener that reports the lag of streaming queries."""

import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyrocket.errors import PyrocketError
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pyrocket.tools.lag.measure import TopicLag, lag_of
from pyspark_pyrocket.transport.interface import MessageSource
from pyspark_pyrocket.transport.targets import target_at

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

LOG_SECONDS = 10.0
"""The minimum time between two log lines of one query."""

_LOG = logging.getLogger("pyspark_pyrocket.lag")


@dataclass(frozen=True, kw_only=True)
class BatchFacts:
    """The number, rows and duration of a micro-batch, from Spark's progress."""

    number: int
    rows: int
    duration_ms: int

    @classmethod
    def of(cls, progress: dict[str, Any]) -> "BatchFacts":
        """Return the facts of a progress, parsed from its JSON."""
        duration = progress.get("durationMs", {}).get("triggerExecution", 0)
        return cls(number=progress["batchId"], rows=progress["numInputRows"], duration_ms=duration)


class LagTarget(Protocol):
    """Receives lags, in addition to the log."""

    def report(self, query: str, lags: Iterable[TopicLag], batch: BatchFacts) -> None:
        """Receive the lags of a query after a micro-batch."""

    def forget(self, query: str) -> None:
        """Drop the lags of a query that has ended."""


class LagListener(StreamingQueryListener):
    """Reports the lag of each streaming query that reads pyrocket, after each micro-batch.

    A query is identified by its name, or by its id if it has none. The callbacks never raise, so
    the listener cannot disturb a query.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        targets: Sequence[LagTarget] = (),
        log_seconds: float | None = LOG_SECONDS,
    ) -> None:
        """Create a listener.

        store: the store's directory; adds lag in bytes and in time. log_seconds: the minimum time
        between two log lines of one query; None disables them.
        """
        self._path, self._targets, self._log_seconds = store, targets, log_seconds
        self._source: MessageSource | None = None
        self._logged: dict[str, float] = {}
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Do nothing: there is no lag before the first micro-batch."""

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """Report the lag; log an error instead of raising it."""
        try:
            self.report(json.loads(event.progress.json))
        except Exception:  # Spark would report any exception as an error of the query.
            _LOG.exception("could not measure the lag of a query")

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """Do nothing: no message has been read since the last micro-batch."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """Drop the state of the query, here and in the targets."""
        query = str(event.id)
        name = self._names.pop(query, None)
        self._logged.pop(query, None)
        if name is not None:
            for target in self._targets:
                target.forget(name)

    def report(self, progress: dict[str, Any]) -> None:
        """Report the lag of a query from its progress, parsed from JSON."""
        source = self._opened()
        lags = [lag for each in progress["sources"] for lag in lag_of(each, source)]
        if not lags:
            return
        query = progress["id"]
        name = self._names.setdefault(query, progress.get("name") or query)
        for target in self._targets:
            target.report(name, lags, BatchFacts.of(progress))
        self._log(query, name, lags)

    def close(self) -> None:
        """Close the store, if it is open."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _opened(self) -> MessageSource | None:
        if self._source is None and self._path:
            try:
                self._source = target_at(self._path).open_own_source()
            except PyrocketError as error:
                _LOG.warning("lag is measured in messages only: %s", error)
                self._path = None
        return self._source

    def _log(self, query: str, name: str, lags: list[TopicLag]) -> None:
        if self._log_seconds is None:
            return
        now = time.monotonic()
        if query not in self._logged or now - self._logged[query] >= self._log_seconds:
            self._logged[query] = now
            _LOG.info("query %s is behind in %s", name, "; ".join(map(str, lags)))
