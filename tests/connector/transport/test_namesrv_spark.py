"""Spark over a cluster of RocketMQ: the fake one, in this process."""

import pytest
from pyrocket import Message
from pyspark.errors import StreamingQueryException
from support.rocketmq_cluster import rocketmq
from support.rocketmq_server import Fault, RefusedError
from support.transports import namesrv_target

A, B = "broker-a", "broker-b"
COLUMNS = "brokerName STRING, queueId INT, body STRING"


class Cluster:
    """Topic t with two queues at broker-a and one at broker-b."""

    def __init__(self, made):
        self.made, self.sent = made, []
        self.brokers = {broker.name: broker for broker in made.brokers}
        for name, queues in ((A, 2), (B, 1)):
            topics = self.brokers[name].store.topics
            topics.create("t", read_queues=queues, write_queues=queues)

    def send(self, name, *bodies, queue=0, tags=None):
        for body in bodies:
            message = Message(topic="t", body=body.encode(), queue_id=queue, tags=tags)
            self.brokers[name].store.append(message)
        self.sent += [(name, queue, body) for body in bodies]

    def options(self, **more):
        servers = ";".join(self.made.addresses)
        return {"namesrv": servers, "topic": "t", "startingOffsets": "earliest", **more}


@pytest.fixture
def cluster(tmp_path):
    with rocketmq(tmp_path / "rocketmq", brokers=(A, B)) as made:
        yield Cluster(made)
        namesrv_target(made).close_source()


def rows_of(frame):
    return sorted(map(tuple, frame.collect()))


def test_a_batch_reads_the_queues_of_all_brokers(cluster, spark):
    cluster.send(A, "a", "b", queue=0, tags="x")
    cluster.send(A, "c", queue=1)
    cluster.send(B, "d", "e", "f", tags="x")
    read = spark.read.format("pyrocket").schema(COLUMNS)
    assert rows_of(read.options(**cluster.options()).load()) == sorted(cluster.sent)
    some = read.options(**cluster.options(tags="x", endingOffsets="latest"))
    assert [row[-1] for row in rows_of(some.load())] == ["a", "b", "d", "e", "f"]


def test_a_stream_continues_exactly_and_a_group_follows_it(cluster, stream):
    stream.schema, stream.options = COLUMNS, cluster.options(commitToGroup="g")
    cluster.send(A, "a0", "a1", queue=1)
    cluster.send(B, "b0")
    query = stream.start()
    try:
        query.processAllAvailable()
        cluster.brokers[B].kill()
        cluster.send(A, "a2")
        cluster.brokers[B].start()
        cluster.send(B, "b1", "b2")
        query.processAllAvailable()
    finally:
        query.stop()
    assert stream.output() == sorted(cluster.sent)
    cluster.send(A, "a3")
    assert sum(stream.drain()) == 1
    assert stream.output() == sorted(cluster.sent)
    committed = cluster.brokers[A].store.groups.committed("g", "t")
    assert committed == {0: 2, 1: 2}


LOSSES = {"expired": "OFFSET_OUT_OF_RANGE", "deleted": "TOPIC_DELETED", "shorter": "LOG_TRUNCATED"}


def lose(cluster, loss):
    """Lose messages at broker-a; return those that are left to read."""
    broker = cluster.brokers[A]
    if loss == "expired":
        cluster.send(A, "a3", "a4")
        broker.expired = 4
        return ["a4"]
    if loss == "deleted":
        for one in cluster.brokers.values():
            one.store.topics.delete("t")
        return []
    broker.hidden = 1  # As if a slave that lacks the last message had become the master.
    broker.faults.append(Fault(RefusedError(1, "can not find message by the offset"), 33, 10**6))
    return []


QUICK = ("expired", "skip")
CASES = [
    pytest.param(loss, policy, marks=() if (loss, policy) == QUICK else pytest.mark.heavy)
    for loss in LOSSES
    for policy in ("fail", "skip")
]


@pytest.mark.parametrize(("loss", "policy"), CASES)
def test_the_policy_decides_about_a_loss(cluster, stream, loss, policy):
    stream.schema, stream.options = COLUMNS, cluster.options(onDataLoss=policy)
    cluster.send(A, "a0", "a1", "a2")
    stream.drain()
    left = lose(cluster, loss)
    namesrv_target(cluster.made).close_source()
    if policy == "fail":
        with pytest.raises(StreamingQueryException, match=LOSSES[loss]):
            stream.drain()
        return
    stream.drain()
    assert sorted(body for *_, body in stream.output()) == ["a0", "a1", "a2", *left]
