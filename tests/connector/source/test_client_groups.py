"""A group of `pyrocket.client` and a Spark query continue at each other's offsets."""

import threading

import pytest
from pyrocket import Message, Store
from pyrocket.client import ConsumeResult, Producer, PushConsumer
from support.broker import served
from support.shares import share


@pytest.fixture(params=share(["endpoint", "path"], 1))
def at(request, tmp_path):
    store = Store.open(tmp_path / "s", create=True)
    store.topics.create("orders", read_queues=2, write_queues=2)
    if request.param == "path":
        store.close()
        yield {"path": str(tmp_path / "s")}
        return
    with served(store) as address:
        yield {"endpoint": address}


def send(at, *bodies):
    with Producer(**at) as producer:
        for body in bodies:
            producer.send(Message(topic="orders", body=body))


def consume(at, count):
    """Consume with a push consumer of the group; return the bodies."""
    found, done = [], threading.Event()

    def listen(messages):
        found.extend(message.body for message in messages)
        if len(found) >= count:
            done.set()
        return ConsumeResult.SUCCESS

    settings = {"subscriptions": {"orders": "*"}, "consume_from": "first"}
    with PushConsumer("billing", **at, listener=listen, **settings):
        assert done.wait(60)
    return sorted(found)


def test_a_query_and_consumers_continue_at_each_others_offsets(spark, at, tmp_path):
    def query(**options):
        reads = spark.readStream.format("pyrocket").options(**at, topic="orders", **options)
        writes = reads.load().select("body").writeStream.format("parquet")
        writes = writes.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writes.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(120)
        return sorted(
            bytes(row.body) for row in spark.read.parquet(str(tmp_path / "out")).collect()
        )

    send(at, b"1", b"2")
    assert consume(at, 2) == [b"1", b"2"]
    send(at, b"3", b"4")
    seen = query(startingOffsets="committed", group="billing", commitToGroup="billing")
    assert seen == [b"3", b"4"]
    send(at, b"5")
    assert consume(at, 1) == [b"5"]
