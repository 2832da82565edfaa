"""The lag of queries: measured, logged, and served to Prometheus."""

import json
import logging
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyrocket import Store
from pyrocket.errors import StoreNotFoundError, UnsupportedError
from pyrocket.testing import FileClock
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark_pyrocket import DefaultSource, LagListener, lag_of, watch_lag
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.tools.lag.measure import BatchFacts, TopicLag
from pyspark_pyrocket.tools.lag.metrics import LagMetrics
from pyspark_pyrocket.transport.path import PathSource, forget
from pyspark_pyrocket.transport.targets import opened_source, target_at
from pyspark_pyrocket.worker import LOG
from support.broker import served

SCHEMA = default_columns(kafka=False, headers=False, text=False)


@pytest.fixture
def progress(box):
    """Return a function that makes the progress of a micro-batch with this number of messages."""

    def make(rows, **more):
        reader = DefaultSource(
            {**box.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
        ).streamReader(schema=SCHEMA)
        end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(rows))
        source = {"endOffset": end, "latestOffset": reader.reportLatestOffset()}
        about = {"id": "q-1", "batchId": 7, "numInputRows": rows, "sources": [source]}
        return {**about, "durationMs": {"triggerExecution": 230}, **more}

    yield make
    forget(box.path)


def test_lag_in_messages_is_measured_from_the_progress(box, progress):
    """The query has read three of eight messages."""
    box.create(queues=2)
    box.send(*"abcdef", queue=0)
    box.send(*"gh", queue=1)
    (source,) = progress(3)["sources"]
    (found,) = lag_of(source)
    assert (found.topic, found.messages) == ("t", 8 - sum(taken(source)))
    assert (found.bytes_left, found.latency_ms, found.lost) == (None, None, 0)


def taken(source):
    return source["endOffset"]["offsets"]["t"]["broker-a"].values()


def test_the_store_adds_lag_in_bytes_and_in_time(box, progress):
    clock = FileClock(box.path)
    clock.set(1_700_000_000_000)
    box.create(queues=1)
    box.send("read", queue=0)
    clock.advance(1_000)
    box.send("b" * 100, "c" * 100, queue=0)
    clock.advance(5_000)
    (source,) = progress(1)["sources"]
    (found,) = lag_of(source, box.path)
    with Store.open(box.path, read_only=True) as store:
        sizes = pa.concat_arrays(
            [part.column("storeSize") for part in store.scan("t", 0, 1, 3, ["storeSize"])]
        )
    assert found.bytes_left == sum(sizes.to_pylist())
    with opened_source(target_at(box.path)) as opened:
        assert lag_of(source, Path(box.path)) == lag_of(source, opened) == [found]
    with Store.open(box.path, clock=clock) as store, served(store) as address:
        (remote,) = lag_of(source, {"endpoint": address, "topic": "t"})
    assert (remote.messages, remote.bytes_left) == (2, found.bytes_left)
    assert 5_000 <= remote.latency_ms < 60_000
    assert found.latency_ms == 5_000, "the age of the first unread message"


def test_lag_of_many_topics_reads_each_queue_once(monkeypatch):
    """With a thousand topics, reading every queue once per topic took 0.14 s per micro-batch."""

    def offset(at):
        queues = {topic: {"broker-a": {"0": at, "1": at}} for topic in "tuv"}
        brokers = {"broker-a": {"epoch": 0, "store": "x"}}
        return {"brokers": brokers, "offsets": queues, "topics": {}, "version": 2}

    monkeypatch.setattr(Offsets, "of_topics", lambda *_: pytest.fail("looked at every queue"))
    found = lag_of({"endOffset": offset(3), "latestOffset": offset(5)})
    assert [(each.topic, each.messages) for each in found] == [(topic, 4) for topic in "tuv"]


def test_a_path_without_a_store_is_an_error(box, progress, tmp_path):
    box.create(queues=1)
    box.send("a", "b")
    (source,) = progress(1)["sources"]
    with pytest.raises(StoreNotFoundError):
        lag_of(source, tmp_path / "none")


def test_offsets_are_accepted_as_text_and_as_json(box, progress):
    box.create(queues=1)
    box.send("a", "b")
    (source,) = progress(1)["sources"]
    as_text = {name: json.dumps(value) for name, value in source.items()}
    assert lag_of(as_text) == lag_of(source)


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"endOffset": None, "latestOffset": None},
        {"endOffset": "12", "latestOffset": "34"},
        {"endOffset": '{"t":{"0":1}}', "latestOffset": '{"t":{"0":1}}'},
        {"endOffset": "no JSON", "latestOffset": "no JSON"},
    ],
)
def test_sources_of_other_formats_have_no_lag(source):
    assert lag_of(source) == []


def test_lag_in_bytes_is_not_measured_with_another_store(box, progress, tmp_path):
    box.create(queues=1)
    box.send("a", "b")
    (source,) = progress(1)["sources"]
    with Store.open(tmp_path / "other", create=True) as store:
        (found,) = lag_of(source, PathSource(store))
    assert found.bytes_left is None


def test_lost_messages_are_reported_with_the_lag(box, progress):
    box.create(queues=1)
    box.send("a", "b")
    (source,) = progress(1)["sources"]
    source["endOffset"]["lost"] = {"t": {"broker-a": {"0": 5}}}
    (found,) = lag_of(source)
    assert found.lost == 5
    assert str(found) == "t by 1 messages, 5 lost"


def test_messages_lost_with_a_deleted_topic_are_reported(box, progress):
    box.create(queues=1)
    box.send("a", "b")
    (source,) = progress(1)["sources"]
    source["endOffset"]["lost"] = {"u": {"broker-a": {"0": 5, "1": 2}}}
    found = {lag.topic: lag.lost for lag in lag_of(source, box.path)}
    assert found == {"t": 0, "u": 7}


def test_a_query_that_has_read_everything_has_no_lag(box, progress):
    box.create(queues=1)
    box.send("a")
    (source,) = progress(1)["sources"]
    with opened_source(target_at(box.path)) as store:
        (found,) = lag_of(source, store)
    assert (found.messages, found.bytes_left, found.latency_ms) == (0, 0, 0)


def test_metrics_have_the_names_and_labels_of_rocketmq(box, progress):
    box.create(queues=1)
    box.send("a", "b", "c")
    registry = CollectorRegistry()
    listener = LagListener(box.path, targets=[LagMetrics(registry)])
    listener.report(progress(1, name="flights"))
    labels = {"consumer_group": "flights", "topic": "t"}
    rocketmq = labels | {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
    rocketmq |= {"is_retry": "false", "is_system": "false"}
    get = registry.get_sample_value
    assert get("rocketmq_consumer_lag_messages", rocketmq) == 2
    assert get("rocketmq_consumer_lag_latency", rocketmq) >= 0
    assert get("pyrocket_spark_lag_bytes", labels) > 2 * 91
    assert get("pyrocket_spark_lost_messages", labels) == 0
    query = {"consumer_group": "flights"}
    assert get("pyrocket_spark_batch_id", query) == 7
    assert get("pyrocket_spark_batch_rows", query) == 1
    assert get("pyrocket_spark_batch_duration_ms", query) == 230
    listener.close()


def test_the_metrics_of_a_topic_cover_all_its_brokers_and_sources():
    registry = CollectorRegistry()
    sizes = {"bytes_left": 100, "latency_ms": 7}
    of_a = TopicLag(topic="t", broker="a", messages=3, lost=5, **sizes)
    of_b = TopicLag(topic="t", broker="b", messages=4)
    again = replace(of_a, messages=1, lost=0, latency_ms=9)
    LagMetrics(registry).report(
        "q", [of_a, of_b, again], BatchFacts(number=0, rows=0, duration_ms=0)
    )
    topic = {"consumer_group": "q", "topic": "t"}
    broker = topic | {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "a"}
    broker |= {"is_retry": "false", "is_system": "false"}
    get = registry.get_sample_value
    assert get("pyrocket_spark_lost_messages", topic) == 5
    assert get("pyrocket_spark_lag_bytes", topic) == 200
    assert get("rocketmq_consumer_lag_messages", broker) == 4
    assert get("rocketmq_consumer_lag_latency", broker) == 9


def test_an_ended_query_leaves_no_metrics(box, progress):
    box.create(queues=1)
    box.send("a", "b")
    registry = CollectorRegistry()
    listener = LagListener(targets=[LagMetrics(registry)])
    listener.report(progress(1))
    assert b'topic="t"' in generate_latest(registry)
    listener.onQueryTerminated(type("Event", (), {"id": "q-1"})())
    assert b"{" not in generate_latest(registry)


def test_lag_is_logged_at_most_once_per_interval(box, progress, caplog):
    box.create(queues=1)
    box.send("a", "b")
    asked = progress(1, name="flights")
    often, seldom, never = (LagListener(log_seconds=s) for s in (0, 3600, None))
    with caplog.at_level(logging.INFO, "pyspark_pyrocket.lag"):
        for listener, lines in ((often, 2), (seldom, 1), (never, 0)):
            caplog.clear()
            listener.report(asked)
            listener.report(asked)
            expected = ["query flights is behind in t by 1 messages"] * lines
            assert [record.message for record in caplog.records] == expected


def test_without_the_store_lag_is_in_messages_only(box, progress, tmp_path, caplog):
    box.create(queues=1)
    box.send("a", "b")
    listener = LagListener(str(tmp_path / "none"))
    with caplog.at_level(logging.INFO, "pyspark_pyrocket.lag"):
        listener.report(progress(1))
        listener.report(progress(1))
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "messages only" in warnings[0].message


def test_a_listener_never_raises(caplog):
    event = type("Event", (), {"progress": type("Progress", (), {"json": "{}"})()})()
    LagListener().onQueryProgress(event)
    assert "could not measure the lag" in caplog.text


def test_without_prometheus_lag_is_logged_and_a_port_is_rejected(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UnsupportedError, match="prometheus-client") as caught:
        watch_lag(None, port=0)
    assert caught.value.code == "UNSUPPORTED_METRICS"
    assert "pyrocket[metrics]" in caught.value.remedy


class Recorder:
    """A target that records the reported lags."""

    def __init__(self):
        self.seen, self.forgotten = [], []

    def report(self, query, lags, batch):
        self.seen.append((query, batch.number, [(each.topic, each.messages) for each in lags]))

    def forget(self, query):
        self.forgotten.append(query)


def test_a_listener_receives_the_lag_of_each_micro_batch(spark, box, stream):
    """Five messages are read, two at a time; the listener reports the same lag as the progress."""
    box.create(queues=1)
    box.send(*"abcde", queue=0)
    recorder = Recorder()
    listener = LagListener(box.path, targets=[recorder])
    spark.streams.addListener(listener)
    try:
        stream.drain(maxOffsetsPerTrigger="2")
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    sources = [progress["sources"][0] for progress in stream.progress]
    assert [lag_of(source)[0].messages for source in sources] == [3, 1, 0]
    name = stream.progress[0]["id"]
    assert recorder.seen == [(name, n, [("t", left)]) for n, left in enumerate([3, 1, 0])]
    assert recorder.forgotten == [name]


class Session:
    """The parts of a SparkSession that `watch_lag` uses."""

    def __init__(self):
        self.streams, self.listeners = self, []
        self.addListener, self.removeListener = self.listeners.append, self.listeners.remove


def test_watch_lag_serves_metrics_until_it_is_stopped(box, progress):
    box.create(queues=1)
    box.send("a", "b", "c")
    session = Session()
    watching = watch_lag(session, store=box.path, port=0, log_seconds=None)
    (listener,) = session.listeners
    listener.report(progress(1, name="flights"))
    assert 'consumer_group="flights"' in scrape(watching.port)
    watching.stop()
    assert session.listeners == []
    with pytest.raises(urllib.error.URLError):
        scrape(watching.port)


def test_a_given_registry_needs_no_port(box, progress):
    box.create(queues=1)
    box.send("a", "b")
    session, registry = Session(), CollectorRegistry()
    watching = watch_lag(session, registry=registry)
    session.listeners[0].report(progress(1, name="flights"))
    assert b'consumer_group="flights"' in generate_latest(registry)
    watching.stop()


def test_log_lines_alone_need_no_other_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    session = Session()
    watching = watch_lag(session)
    assert (watching.registry, watching.port) == (None, None)
    watching.stop()


def test_lag_is_printed_if_logging_is_not_configured(box, progress, monkeypatch, capsys):
    box.create(queues=1)
    box.send("a", "b")
    for name, value in {"handlers": [], "propagate": False, "level": logging.NOTSET}.items():
        monkeypatch.setattr(LOG, name, value)
    session = Session()
    watching = watch_lag(session, store=box.path, log_seconds=0)
    session.listeners[0].report(progress(1, name="flights"))
    watching.stop()
    assert "INFO pyrocket: query flights is behind in t" in capsys.readouterr().err


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()
