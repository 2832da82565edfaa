"""What Spark tells of streaming queries, passed on as lag."""

import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyrocket.errors import PyrocketError
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pyrocket.tools.lag.measure import TopicLag, lag_of
from pyspark_pyrocket.transport.path import PathSource, open_source

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

LOG_SECONDS = 10.0
"""Between two log lines of one query."""

_LOG = logging.getLogger("pyspark_pyrocket.lag")


@dataclass(frozen=True, kw_only=True)
class BatchFacts:
    """What else Spark tells of a micro-batch."""

    number: int
    rows: int
    duration_ms: int

    @classmethod
    def of(cls, progress: dict[str, Any]) -> "BatchFacts":
        """Read a progress as JSON."""
        duration = progress.get("durationMs", {}).get("triggerExecution", 0)
        return cls(number=progress["batchId"], rows=progress["numInputRows"], duration_ms=duration)


class Target(Protocol):
    """Where lags go besides the log."""

    def report(self, query: str, lags: Iterable[TopicLag], batch: BatchFacts) -> None:
        """Take the lags of a query after a micro-batch."""
        ...

    def forget(self, query: str) -> None:
        """Take note that a query has ended."""
        ...


class LagListener(StreamingQueryListener):
    """Tells the lag of each streaming query that reads pyrocket, after each micro-batch.

    A query goes by its name, or by its id if it has none. Nothing here ever raises: a query does
    not suffer from being watched.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        targets: Sequence[Target] = (),
        log_seconds: float | None = LOG_SECONDS,
    ) -> None:
        """Make one; `store`, a directory, adds bytes and time; None for `log_seconds` is quiet."""
        self._path, self._targets, self._log_seconds = store, targets, log_seconds
        self._source: PathSource | None = None
        self._logged: dict[str, float] = {}
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Do nothing: there is no lag before the first micro-batch."""

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """Tell the lag."""
        try:
            self.report(json.loads(event.progress.json))
        except Exception:  # Whatever it is: Spark would show it as a fault of the query's.
            _LOG.exception("the lag of a query could not be told")

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """Do nothing: nothing has come since the last micro-batch."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """Forget what was told of the query."""
        query = str(event.id)
        name = self._names.pop(query, None)
        self._logged.pop(query, None)
        if name is not None:
            for target in self._targets:
                target.forget(name)

    def report(self, progress: dict[str, Any]) -> None:
        """Tell the lag of a query whose progress this is, as JSON has it."""
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

    def _opened(self) -> PathSource | None:
        if self._source is None and self._path:
            try:
                self._source = open_source(self._path)
            except PyrocketError as error:
                _LOG.warning("lag is told in messages only: %s", error)
                self._path = None
        return self._source

    def _log(self, query: str, name: str, lags: list[TopicLag]) -> None:
        if self._log_seconds is None:
            return
        now = time.monotonic()
        if query not in self._logged or now - self._logged[query] >= self._log_seconds:
            self._logged[query] = now
            _LOG.info("query %s is behind in %s", name, "; ".join(map(str, lags)))
