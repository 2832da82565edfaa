"""The metrics of topics and of consumer groups."""

import socket
import struct
import threading
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest
from pyrocket import Message, Store
from pyrocket.broker.broker import Broker
from pyrocket.client import ConsumeResult, PushConsumer
from pyrocket.server.call_server import DEFAULTS
from pyrocket.server.incoming import CallLimits
from pyrocket.server.monitoring import Metrics, MonitoringServer
from support import broker_process
from support.name_server import wait_until
from support.rocketmq_stub import Stub, queue, resource
from support.stores import append_as_broker

GROUP, TOPIC = resource("g"), resource("t")


def receive_and_ack(stub, count, *, acks):
    replies = stub.call(
        "ReceiveMessage",
        group=GROUP,
        message_queue=queue("t"),
        batch_size=count,
        invisible_duration={"seconds": 60},
    )
    handles = [one.message.system_properties.receipt_handle for one in replies]
    for handle in filter(None, handles if acks else ()):
        entries = [{"receipt_handle": handle}]
        stub.call("AckMessage", group=GROUP, topic=TOPIC, entries=entries)


@pytest.fixture
def broker(tmp_path):
    store = Store.open(tmp_path / "s", create=True)
    store.topics.create("t")
    with closing(Broker(store)) as broker:
        yield broker


@pytest.fixture
def metrics(broker):
    server = SimpleNamespace(limits=CallLimits(DEFAULTS))
    return Metrics(broker, server, SimpleNamespace(count=0), "east")


def test_a_topic_that_is_deleted_during_a_scrape_is_omitted(broker, metrics, monkeypatch):
    topics = {"gone": None, **broker.source.topics()}
    monkeypatch.setattr(broker.source, "topics", lambda: topics)
    text = generate_latest(metrics.registry).decode()
    assert 'topic="t"' in text
    assert "gone" not in text


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6")
def test_metrics_are_served_at_an_address_of_ipv6(metrics):
    with closing(MonitoringServer("::1", 0, metrics, str)) as server:
        reply = urllib.request.urlopen(f"http://[::1]:{server.port}/health")
        assert reply.read() == b"ready\n"


def test_a_client_that_has_gone_writes_nothing_to_standard_error(metrics, capfd, caplog):
    with closing(MonitoringServer("127.0.0.1", 0, metrics, str)) as server:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                reset = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        address = f"http://127.0.0.1:{server.port}/metrics?all=1"
        wait_until(lambda: urllib.request.urlopen(address).status == 200)
        time.sleep(0.2)
    assert (capfd.readouterr().err, caplog.records) == ("", [])


def test_an_error_of_a_scrape_is_logged(broker, metrics, monkeypatch, capfd, caplog):
    monkeypatch.setattr(broker, "lags", lambda: 1 // 0)
    with (
        closing(MonitoringServer("127.0.0.1", 0, metrics, str)) as server,
        pytest.raises(OSError, match="without response"),
    ):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics")
    assert capfd.readouterr().err == ""
    assert "ZeroDivisionError" in caplog.text


def values(found, name, label):
    return dict(broker_process.metric(found, f"rocketmq_consumer_{name}", label))


def test_the_metrics_report_the_lag_of_each_group_and_topic(tmp_path):
    with Store.open(tmp_path / "s", create=True) as store:
        store.topics.create("t")
        store.groups.create("g")
    flags = ("--metrics", "127.0.0.1:0", "--cluster-name", "east")
    with broker_process.running(tmp_path / "s", *flags) as (_, found):
        stub = Stub(found.listen[0])
        stub.send(b"1", b"2", b"3", topic="t")
        receive_and_ack(stub, 1, acks=False)
        assert values(found, "lag_messages", "consumer_group") == {"g": 3}
        assert values(found, "inflight_messages", "topic") == {"t": 1}
        assert values(found, "inflight_messages", "cluster") == {"east": 1}
        assert values(found, "ready_messages", "is_retry") == {"false": 2, "true": 0}
        assert values(found, "lag_latency", "topic")["t"] > 0
        failed = broker_process.metric(found, "pyrocket_failed_rounds_total", "thread")
        assert (failed["flushes"], {*failed.values()}) == (0, {0})
        receive_and_ack(stub, 32, acks=True)
        assert values(found, "lag_messages", "topic") == {"t": 1}
        stub.close()


def test_the_metrics_report_the_lag_of_groups_that_commit_offsets(tmp_path):
    with Store.open(tmp_path / "s", create=True) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        store.topics.create("%RETRY%g", read_queues=1, write_queues=1)
        for number in range(5):
            store.append(Message(topic="t", body=b"1", queue_id=number % 2))
        append_as_broker(store, "%RETRY%g", {}, 0, body=b"again")
        store.groups.commit("g", "t", {0: 1})
        store.groups.commit("g", "%RETRY%g", {0: 0})
        store.groups.commit("done", "t", {0: 3, 1: 2})
        store.groups.create("idle")
    with broker_process.running(tmp_path / "s", "--metrics", "127.0.0.1:0") as (_, found):
        assert values(found, "lag_messages", "consumer_group") == {"g": 5, "done": 0}
        assert values(found, "lag_messages", "is_retry") == {"false": 4, "true": 1}
        assert values(found, "ready_messages", "topic") == {"t": 4, "%RETRY%g": 1}
        assert values(found, "inflight_messages", "consumer_group") == {"g": 0, "done": 0}
        latency = values(found, "lag_latency", "consumer_group")
        assert latency["g"] > 0
        assert latency["done"] == 0


def test_messages_between_the_commit_and_the_last_pull_are_in_flight(tmp_path):
    with Store.open(tmp_path / "s", create=True) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        for _ in range(5):
            store.append(Message(topic="t", body=b"1"))
    wait, started = threading.Event(), threading.Event()

    def listener(messages):
        started.set()
        wait.wait(30)
        return ConsumeResult.SUCCESS

    with broker_process.running(tmp_path / "s", "--metrics", "127.0.0.1:0") as (_, found):
        settings = {"subscriptions": {"t": "*"}, "consume_from": "first", "listener": listener}
        with PushConsumer("g", endpoint=found.listen[0], **settings) as consumer:
            assert started.wait(30)
            wait_until(lambda: values(found, "inflight_messages", "topic").get("t") == 5)
            assert values(found, "lag_messages", "topic")["t"] == 5
            assert values(found, "ready_messages", "topic")["t"] == 0
            wait.set()
            wait_until(lambda: consumer.stats.consumed == 5)
        assert values(found, "lag_messages", "topic")["t"] == 0
        assert values(found, "inflight_messages", "topic")["t"] == 0
