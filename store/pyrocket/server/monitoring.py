"""Serves /metrics for Prometheus, and /health.

RocketMQ's metrics have RocketMQ's names; the names of other metrics begin with `pyrocket_`.
Source: `BrokerMetricsConstant`, `DefaultStoreMetricsConstant`. Needs prometheus-client.
"""

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from pyrocket.broker.broker import Broker
from pyrocket.errors import TopicNotFoundError
from pyrocket.metadata.topics import is_system_topic
from pyrocket.server.call_server import LoopWatch
from pyrocket.server.health import trouble_or_error
from pyrocket.server.server import Server
from pyrocket.server.tls import Certificate
from pyrocket.values.message import SendStatus
from pyrocket.values.source import ReplicaState

_NODE = ("cluster", "node_type", "node_id")
_TOPIC = (*_NODE, "topic", "is_system")
_GROUP = (*_NODE, "consumer_group", "topic", "is_retry")
_LAGS = {
    "rocketmq_consumer_lag_messages": "Messages not acked or committed.",
    "rocketmq_consumer_lag_latency": "Age in ms of the oldest of these messages.",
    "rocketmq_consumer_inflight_messages": "Delivered messages, not acked or committed.",
    "rocketmq_consumer_ready_messages": "Messages that were never delivered.",
}
_OF_REPLICAS = (
    ("pyrocket_replica_connected", "Whether a replica is connected to its primary."),
    ("pyrocket_replica_lag_bytes", "Bytes of the log that a replica does not have durably."),
    ("pyrocket_replica_lag_seconds", "Age of the oldest message that a replica does not have."),
)
_TYPE = "broker"
_log = logging.getLogger(__name__)
_REQUEST_S = 10
"""Timeout of a connection whose client does not complete its request or read the reply."""


class Metrics:
    """The metrics of one broker, collected at each scrape."""

    def __init__(
        self,
        broker: Broker,
        server: Server,
        watch: LoopWatch,
        cluster: str,
        certificate: Certificate | None = None,
    ) -> None:
        self._certificate = certificate
        self._broker, self._server, self._watch = broker, server, watch
        self._node = (cluster, _TYPE, broker.hello().broker)
        self.registry = CollectorRegistry()
        self._latency = Histogram(
            "rocketmq_rpc_latency",
            "Duration of calls in seconds.",
            (*_NODE, "request_code", "response_code"),
            registry=self.registry,
        )
        server.observe = self._observe
        self.registry.register(self)

    def _observe(self, call: str, status: str, seconds: float) -> None:
        self._latency.labels(*self._node, call, status).observe(seconds)

    @property
    def notice(self) -> str:
        """A notice for operators, appended to the reply of /health; empty if there is none."""
        count = self._broker.damaged
        return f", but groups could not receive {count} damaged messages" if count else ""

    def collect(self) -> Iterator[Metric]:
        """Yield the current values, for the registry."""
        state, server = self._broker.running(), self._server
        yield self._gauge("rocketmq_broker_permission", "6: read and write, 4: read.",
                          state.permission)  # fmt: skip
        yield self._gauge("rocketmq_storage_size", "Size of the log in bytes.",
                          self._broker.log_bytes())  # fmt: skip
        yield self._gauge("rocketmq_storage_flush_behind_bytes", "Bytes that are not flushed yet.",
                          state.published - state.flushed)  # fmt: skip
        yield self._gauge("rocketmq_storage_dispatch_behind_bytes",
                          "Bytes that are not dispatched to the queues yet.",
                          state.published - state.dispatched)  # fmt: skip
        yield self._counter("rocketmq_throughput_in", "Bytes appended to the log.", state.published)
        yield self._gauge("rocketmq_consumer_connections", "Clients that wait for changes.",
                          server.limits.parked.total)  # fmt: skip
        yield self._gauge("pyrocket_bytes_in_memory", "Bytes of requests and replies in memory.",
                          server.limits.held())  # fmt: skip
        yield self._counter("pyrocket_stalled_streams",
                            "Streams cancelled because the client stopped reading or sending.",
                            server.limits.stalled)  # fmt: skip
        yield self._counter("pyrocket_event_loop_held",
                            "Callbacks that blocked the event loop for more than 20 ms.",
                            self._watch.count)  # fmt: skip
        yield self._counter("pyrocket_damaged_messages",
                            "Damaged messages that a consumer group could not receive.",
                            self._broker.damaged)  # fmt: skip
        yield self._counter("pyrocket_dropped_traces",
                            "Records of the message trace that were not stored.",
                            self._broker.dropped_traces)  # fmt: skip
        if self._certificate is not None:
            yield self._gauge("pyrocket_certificate_expiry_seconds",
                              "When the TLS certificate expires, in seconds since the epoch.",
                              self._certificate.expiry_s)  # fmt: skip
        yield self._gauge("pyrocket_replica_available",
                          "Whether sends with `sync` can wait for a replica; 1 without `sync`.",
                          state.sync in ("", SendStatus.SEND_OK.value))  # fmt: skip
        yield from self._replicas(state.replicas)
        yield self._failed_rounds()
        yield self._messages()
        yield from self._lags()

    def _replicas(self, states: Sequence[ReplicaState]) -> Iterator[Metric]:
        families = [GaugeMetricFamily(*gauge, labels=(*_NODE, "replica")) for gauge in _OF_REPLICAS]
        for state in states:
            values = state.connected, state.lag_bytes, state.lag_ms / 1000
            for family, value in zip(families, values, strict=True):
                family.add_metric((*self._node, state.name), value)
        yield from families

    def _failed_rounds(self) -> Metric:
        metric = CounterMetricFamily(
            "pyrocket_failed_rounds",
            "Rounds of the broker's threads that failed and are retried.",
            labels=(*_NODE, "thread"),
        )
        for thread, count in self._broker.failed_rounds().items():
            metric.add_metric((*self._node, thread), count)
        return metric

    def _messages(self) -> Metric:
        metric = CounterMetricFamily(
            "rocketmq_messages_in", "Messages appended to a topic.", labels=_TOPIC
        )
        source, name = self._broker.source, self._node[2]
        for topic in source.topics():
            with suppress(TopicNotFoundError):  # It may have been deleted meanwhile.
                count = sum(bounds.maximum for bounds in source.bounds([topic]).values())
                is_system = str(is_system_topic(topic, name)).lower()
                metric.add_metric((*self._node, topic, is_system), count)
        return metric

    def _lags(self) -> Iterator[Metric]:
        families = [GaugeMetricFamily(*lag, labels=_GROUP) for lag in _LAGS.items()]
        for lag in self._broker.lags():
            labels = (*self._node, lag.group, lag.topic, str(lag.is_retry).lower())
            values = (
                sum(queue.lag for queue in lag.queues),
                max((queue.delay_ms for queue in lag.queues), default=0),
                sum(queue.in_flight for queue in lag.queues),
                sum(queue.ready for queue in lag.queues),
            )
            for family, value in zip(families, values, strict=True):
                family.add_metric(labels, value)
        yield from families

    def _gauge(self, name: str, about: str, value: float, kind: Any = GaugeMetricFamily) -> Metric:
        metric = kind(name, about, labels=_NODE)
        metric.add_metric(self._node, value)
        return metric

    def _counter(self, name: str, about: str, value: float) -> Metric:
        return self._gauge(name, about, value, CounterMetricFamily)


class _HttpServer(ThreadingHTTPServer):
    """Logs the errors of requests, except that a client has gone."""

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            _log.exception("a request of %s failed", client_address)


class MonitoringServer:
    """Serves /metrics and /health in its own threads until `close`."""

    def __init__(self, host: str, port: int, metrics: Metrics, trouble: Callable[[], str]) -> None:
        """`trouble` returns the reason why the broker is not ready, or an empty string.

        Raises OSError if the port is in use.
        """
        self._server = _HttpServer(host, port, _handler(metrics, trouble))
        self.port = int(self._server.server_address[1])
        threading.Thread(
            target=self._server.serve_forever, name="pyrocket-metrics", daemon=True
        ).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _handler(metrics: Metrics, trouble: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._reply(200, generate_latest(metrics.registry), CONTENT_TYPE_LATEST)
            elif path == "/health":
                reason = trouble_or_error(trouble)
                text = reason or f"ready{metrics.notice}"
                self._reply(503 if reason else 200, f"{text}\n".encode())
            else:
                self._reply(404, b"Not found. Use /metrics or /health.\n")

        def _reply(self, status: int, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
            """Log nothing, because scrapes are frequent."""

    return Handler
