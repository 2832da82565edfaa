"""Spark over two brokers in processes of their own, which a name server knows."""

import json
from contextlib import ExitStack
from dataclasses import replace

import pytest
from support import name_server
from support.broker_process import RestartableBroker, metric
from support.transports import disconnect

A, B = "broker-a", "broker-b"
COLUMNS = "brokerName STRING, queueId INT, body STRING"


class Cluster:
    """Topic t with two queues at broker-a and one at broker-b."""

    def __init__(self, box, folder, address):
        self.address, self.sent = address, []
        self.brokers, self.boxes = {}, {}
        for name, queues in ((A, 2), (B, 1)):
            flags = ("--nameserver", address, "--broker-name", name)
            broker = self.brokers[name] = RestartableBroker(folder / name, *flags)
            self.boxes[name] = replace(box, path=str(folder / name), address=broker.address)
            self.boxes[name].create(queues=queues)

    def send(self, name, *rows, queue=0):
        """Send rows (queue id, body) to a broker, and remember them."""
        self.boxes[name].send(*rows, queue=queue)
        self.sent += [(name, queue, body) for body in rows]

    def options(self, **more):
        return {"endpoint": self.address, "topic": "t", "startingOffsets": "earliest", **more}


@pytest.fixture
def cluster(box, tmp_path):
    with ExitStack() as stack:
        _, address = stack.enter_context(name_server.running())
        made = Cluster(box, tmp_path, address)
        for broker in made.brokers.values():
            stack.callback(broker.stop)
        stack.callback(disconnect)
        yield made


def test_a_stream_and_a_batch_read_all_brokers_also_after_restarts_of_one(cluster, stream):
    """A broker restarts while the query runs."""
    stream.schema, stream.options = COLUMNS, cluster.options()
    cluster.send(A, "a0", "a1", queue=1)
    cluster.send(B, "b0")
    query = stream.start()
    try:
        query.processAllAvailable()
        cluster.brokers[B].stop()
        cluster.send(A, "a2")
        cluster.brokers[B].start()
        cluster.send(B, "b1", "b2")
        query.processAllAvailable()
    finally:
        query.stop()
    offsets = json.loads(stream.offset(max(stream.batches())))
    assert offsets["offsets"] == {"t": {A: {"0": 1, "1": 2}, B: {"0": 3}}}
    assert sorted(offsets["brokers"]) == [A, B]

    cluster.send(A, "a3")
    cluster.send(B, "b3")
    assert sum(stream.drain()) == 2
    assert stream.output() == sorted(cluster.sent)
    batch = stream.spark.read.format("pyrocket").schema(COLUMNS).options(**cluster.options())
    assert sorted(map(tuple, batch.load().collect())) == sorted(cluster.sent)


@pytest.mark.heavy
def test_a_stream_reads_at_a_replica_and_with_any_also_without_it(cluster, stream, tmp_path):
    """Its tasks wait while the replica restarts; nothing is lost or read twice."""
    cluster.brokers.pop(B).stop()
    primary = cluster.brokers[A]
    flags = ("--replica-of", primary.address, "--nameserver", cluster.address)
    replica = RestartableBroker(tmp_path / "replica", *flags)
    try:
        stream.schema, stream.options = COLUMNS, cluster.options(readFrom="replica")
        cluster.send(A, *map(str, range(500)))
        query = stream.start()
        try:
            query.processAllAvailable()
            replica.stop()
            cluster.send(A, "while it was down", queue=1)
            replica.start()
            query.processAllAvailable()
        finally:
            query.stop()
        assert stream.output() == sorted(cluster.sent)
        assert (reads_of(primary), reads_of(replica) > 0) == (0, True)

        replica.stop()
        cluster.send(A, "without a replica")
        with pytest.raises(Exception, match="REPLICA_UNAVAILABLE"):
            stream.drain(**{"endpoint.timeout": "2s"})
        assert sum(stream.drain(readFrom="any")) == 1
        assert stream.output() == sorted(cluster.sent)
        assert reads_of(primary) > 0
    finally:
        replica.stop()


def reads_of(broker):
    """Return how many calls have read messages at a broker since its start."""
    calls = metric(broker, "rocketmq_rpc_latency_count", "request_code")
    return calls["Slices"] + calls["JoinedSlice"]
