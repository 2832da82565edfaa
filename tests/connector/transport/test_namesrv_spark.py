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


@pytest.mark.heavy
@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("loss", LOSSES)
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


def writing(cluster, **more):
    servers = ";".join(cluster.made.addresses)
    return {"namesrv": servers, "topic": "t", "delivery": "at-least-once", **more}


def test_a_batch_is_written_to_and_read_from_all_brokers(cluster, spark):
    cluster.send(A, "no tag")
    rows = spark.range(60).selectExpr("CAST(id AS STRING) AS body", "'x' AS tags")
    rows.write.format("pyrocket").options(**writing(cluster)).mode("append").save()
    read = spark.read.format("pyrocket").schema(COLUMNS).options(**cluster.options(tags="x"))
    found = rows_of(read.load())
    assert sorted(int(row[-1]) for row in found) == [*range(60)]
    assert {(row[0], row[1]) for row in found} == {(A, 0), (A, 1), (B, 0)}


def test_a_row_that_is_written_again_by_a_replay_is_dropped_by_its_id(cluster, spark, tmp_path):
    """The recipe of CLUSTER.md."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"

    def write():
        stream = spark.readStream.schema("body STRING").text(str(source))
        options = writing(cluster, checkpointLocation=str(checkpoint))
        query = stream.writeStream.format("pyrocket").options(**options)
        query.trigger(availableNow=True).start().awaitTermination()

    bodies = [f"{number:02}" for number in range(20)]
    source.mkdir()
    (source / "rows.txt").write_text("\n".join(bodies))
    write()
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    write()
    ids = spark.read.format("pyrocket").schema("msgId STRING, body STRING")
    found = rows_of(ids.options(**cluster.options()).load())
    assert len(found) == 40
    assert len(set(found)) == len({each for each, _ in found}) == 20

    read = spark.readStream.format("pyrocket").schema(
        "msgId STRING, body STRING, timestamp TIMESTAMP"
    )
    once = (
        read.options(**cluster.options())
        .load()
        .withWatermark("timestamp", "1 hour")
        .dropDuplicatesWithinWatermark(["msgId"])
    )
    query = once.writeStream.format("memory").queryName("once").outputMode("append")
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(row.body for row in spark.table("once").select("body").collect()) == bodies


def test_a_query_moves_from_our_store_to_a_cluster_and_back(cluster, spark, tmp_path, box):
    """The procedure of CLUSTER.md."""

    def run(source, name):
        """Read all new messages with the checkpoint of this name; return all that it has read."""
        rows = spark.readStream.format("pyrocket").schema("body STRING").options(**source).load()
        output, checkpoint = str(tmp_path / name / "rows"), str(tmp_path / name / "checkpoint")
        query = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start(output).awaitTermination()
        return sorted(row.body for row in spark.read.parquet(output).collect())

    ours = {**box.options, "startingOffsets": "earliest"}
    box.create(queues=1).send("1", "2", queue=0)
    assert run(ours, "first") == ["1", "2"]
    cluster.send(A, "3", "4")
    with pytest.raises(StreamingQueryException, match="STORE_CHANGED"):
        run(cluster.options(), "first")
    assert run(cluster.options(), "second") == ["3", "4"]
    box.send("5", queue=0)
    assert run(ours, "first") == ["1", "2", "5"]
