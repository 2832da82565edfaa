"""`watch_lag`: watches the lag of all streaming queries of a session."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrocket.errors import UnsupportedError

from pyspark_pyrocket.tools.lag.listener import LOG_SECONDS, LagListener, LagTarget
from pyspark_pyrocket.worker import log_to_stderr

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession


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
    store: str | None = None,
    port: int | None = None,
    address: str = "127.0.0.1",
    registry: "CollectorRegistry | None" = None,
    log_seconds: float | None = LOG_SECONDS,
) -> LagWatch:
    """Report the lag of the session's streaming queries, in the log and as metrics.

    store: the directory that they read, by default PYROCKET_STORE; adds lag in bytes and in time.
    port: the port at `address` that serves the metrics (0: any free port); None: not served.
    registry: register the metrics in this registry, with or without a port.
    log_seconds: the minimum time between two log lines about a query; None: no log lines.

    Raises UnsupportedError if metrics are requested and prometheus-client is not installed.
    """
    path = store or os.environ.get("PYROCKET_STORE") or None
    wanted = port is not None or registry is not None
    used, targets = _metrics(registry) if wanted else (None, [])
    listener = LagListener(path, targets=targets, log_seconds=log_seconds)
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
