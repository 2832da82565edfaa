"""The metrics of consumer groups."""

from pyrocket import Store
from support import broker_process
from support.rocketmq_stub import Stub, queue, resource

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
        receive_and_ack(stub, 32, acks=True)
        assert values(found, "lag_messages", "topic") == {"t": 1}
        stub.close()
