"""Spark over a cluster of RocketMQ: the fake one, in this process."""

import pytest
from pyrocket import Message
from support.rocketmq_cluster import rocketmq
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
