"""Watches the lag of the streaming queries of a session: a Spark listener, and `watch_lag`."""

import json
import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyrocket.errors import PyrocketError, UnsupportedError
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pyrocket.tools.lag.measure import BatchFacts, TopicLag, lag_of
from pyspark_pyrocket.transport.interface import MessageSource
from pyspark_pyrocket.transport.targets import StorePlace, target_at
from pyspark_pyrocket.worker import log_to_stderr

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

LOG_SECONDS = 10.0
"""The minimum time between two log lines of one query."""

_LOG = logging.getLogger("pyspark_pyrocket.lag")


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
        store: StorePlace | None = None,
        *,
        targets: Sequence[LagTarget] = (),
        log_seconds: float | None = LOG_SECONDS,
    ) -> None:
        """Create a listener.

        store: the store's directory, or the options of a read; adds lag in bytes and in time.
        log_seconds: the minimum time between two log lines of one query; None disables them.
        """
        self._store, self._targets, self._log_seconds = store, targets, log_seconds
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
        lags = [lag for entry in progress["sources"] for lag in lag_of(entry, source)]
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
        if self._source is None and self._store:
            try:
                self._source = target_at(self._store).open_own_source()
            except PyrocketError as error:
                _LOG.warning("lag is measured in messages only: %s", error)
                self._store = None
        return self._source

    def _log(self, query: str, name: str, lags: list[TopicLag]) -> None:
        if self._log_seconds is None:
            return
        now = time.monotonic()
        if query not in self._logged or now - self._logged[query] >= self._log_seconds:
            self._logged[query] = now
            _LOG.info("query %s is behind in %s", name, "; ".join(map(str, lags)))


@dataclass
class LagWatch:
    """A running watch, which ends with `stop` or with the session.

    registry: the registry of the metrics, or None. port: the port that serves them, or None.
    """

    spark: "SparkSession"
    listener: LagListener
    registry: "CollectorRegistry | None" = None
    port: int | None = None
    server: Any = None

    def stop(self) -> None:
        """Stop watching and serving."""
        self.spark.streams.removeListener(self.listener)
        self.listener.close()
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


def watch_lag(
    spark: "SparkSession",
    *,
    store: StorePlace | None = None,
    port: int | None = None,
    address: str = "127.0.0.1",
    registry: "CollectorRegistry | None" = None,
    log_seconds: float | None = LOG_SECONDS,
) -> LagWatch:
    """Report the lag of the session's streaming queries, in the log and as metrics.

    store: the directory that they read, by default PYROCKET_STORE, or the options of their read,
        such as {"endpoint": "host:8081", "topic": "orders"}; adds lag in bytes and in time.
    port: the port at `address` that serves the metrics (0: any free port); None: not served.
    registry: register the metrics in this registry, with or without a port.
    log_seconds: the minimum time between two log lines about a query; None: no log lines.

    Raises UnsupportedError if metrics are requested and prometheus-client is not installed.
    """
    place = store or os.environ.get("PYROCKET_STORE") or None
    wanted = port is not None or registry is not None
    used, targets = _metrics(registry) if wanted else (None, [])
    listener = LagListener(place, targets=targets, log_seconds=log_seconds)
    watching = LagWatch(spark, listener, used)
    if port is not None and used is not None:
        from prometheus_client import start_http_server

        watching.server, _ = start_http_server(port, address, used)
        watching.port = watching.server.server_port
    if log_seconds is not None:
        log_to_stderr()
    spark.streams.addListener(listener)
    return watching


def _metrics(registry: "CollectorRegistry | None") -> tuple["CollectorRegistry", list[LagTarget]]:
    try:
        from prometheus_client import CollectorRegistry

        from pyspark_pyrocket.tools.lag.metrics import LagMetrics
    except ImportError as error:
        raise UnsupportedError(
            f"Metrics need prometheus-client: {error}.",
            remedy="Run: pip install 'pyspark-pyrocket[metrics]', or omit port and registry.",
            code="UNSUPPORTED_METRICS",
        ) from error
    registry = CollectorRegistry() if registry is None else registry
    return registry, [LagMetrics(registry)]
