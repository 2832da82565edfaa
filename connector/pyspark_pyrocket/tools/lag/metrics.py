"""Lags for Prometheus, with RocketMQ's names and labels, so that existing dashboards show them.

Source: `BrokerMetricsConstant`, `BrokerMetricsManager`. The names of metrics that RocketMQ does not
have start with `pyrocket_spark_`. Needs prometheus-client.
"""

from collections.abc import Iterable
from operator import add

from prometheus_client import CollectorRegistry, Gauge
from pyrocket import is_system_topic

from pyspark_pyrocket.tools.lag.measure import BatchFacts, TopicLag

_GROUP = ("consumer_group",)
_TOPIC = (*_GROUP, "topic")
_ROCKETMQ = ("cluster", "node_type", "node_id", *_TOPIC, "is_retry", "is_system")
_CLUSTER = "DefaultCluster"
"""RocketMQ's default; a store without a broker belongs to no cluster."""

_Labels = tuple[str, ...]
_Values = dict[tuple[Gauge, _Labels], int]


class LagMetrics:
    """Gauges, labelled with the query's name as `consumer_group`; outdated series are removed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, about: str, labels: _Labels) -> Gauge:
            return Gauge(name, about, labels, registry=registry)

        self._lag_messages = gauge(
            "rocketmq_consumer_lag_messages", "Messages that have not been read.", _ROCKETMQ
        )
        self._lag_latency = gauge(
            "rocketmq_consumer_lag_latency", "Age of the oldest unread message, ms.", _ROCKETMQ
        )
        self._lag_bytes = gauge(
            "pyrocket_spark_lag_bytes", "Bytes of the log that have not been read.", _TOPIC
        )
        self._lost = gauge(
            "pyrocket_spark_lost_messages", "Messages lost before the query read them.", _TOPIC
        )
        self._batch = gauge("pyrocket_spark_batch_id", "The last micro-batch.", _GROUP)
        self._rows = gauge("pyrocket_spark_batch_rows", "Rows of the last micro-batch.", _GROUP)
        self._duration = gauge(
            "pyrocket_spark_batch_duration_ms", "Duration of the last micro-batch, ms.", _GROUP
        )
        self._exported: dict[str, set[tuple[Gauge, _Labels]]] = {}

    def report(self, query: str, lags: Iterable[TopicLag], batch: BatchFacts) -> None:
        values: _Values = {
            (self._batch, (query,)): batch.number,
            (self._rows, (query,)): batch.rows,
            (self._duration, (query,)): batch.duration_ms,
        }
        # A query may read a topic at several brokers, or with several sources.
        for lag in lags:
            for series, value in self._of_topic(query, lag).items():
                join = max if series[0] is self._lag_latency else add
                values[series] = join(values.get(series, 0), value)
        for (gauge, labels), value in values.items():
            gauge.labels(*labels).set(value)
        self._remove(self._exported.get(query, set()) - values.keys())
        self._exported[query] = set(values)

    def forget(self, query: str) -> None:
        self._remove(self._exported.pop(query, set()))

    def _of_topic(self, query: str, lag: TopicLag) -> _Values:
        is_system = str(is_system_topic(lag.topic, lag.broker)).lower()
        is_retry = str(lag.topic.startswith("%RETRY%")).lower()
        broker = (_CLUSTER, "broker", lag.broker, query, lag.topic, is_retry, is_system)
        values: _Values = {(self._lag_messages, broker): lag.messages}
        values[self._lost, (query, lag.topic)] = lag.lost
        if lag.latency_ms is not None:
            values[self._lag_latency, broker] = lag.latency_ms
        if lag.bytes_left is not None:
            values[self._lag_bytes, (query, lag.topic)] = lag.bytes_left
        return values

    @staticmethod
    def _remove(series: Iterable[tuple[Gauge, _Labels]]) -> None:
        for gauge, labels in series:
            gauge.remove(*labels)
