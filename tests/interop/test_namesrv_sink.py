"""A sink writes to RocketMQ's own brokers, and RocketMQ's own consumer reads what it wrote."""

import base64
import threading
import time
from collections import defaultdict
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import Credentials, Message, RocketMQCluster, RocketMQSink
from pyrocket.errors import MessageError, TopicNotFoundError, UnsupportedError
from pyrocket.formats.hashes import queue_for_key
from pyrocket.remoting.requests import highest_offset, message_at, messages_of_key, pull
from support.remoting_contract import Client, bodies_of, eventually, records_of, topic

__all__ = ["topic"]

QUEUES = 2


class Written:
    """A broker, and sinks for its topics."""

    def __init__(self, java_version, broker, name="broker-a"):
        self.java, self.broker = java_version, broker
        servers = [f"127.0.0.1:{java_version.peer.port}"]
        self.client, self.cluster = Client(servers, name), RocketMQCluster(servers, Credentials())

    def sink(self, **settings):
        return RocketMQSink(self.cluster, **{"seconds": 20} | settings)

    def stored(self, topic):
        """Yield the body and the id of each message, as the broker has them."""
        for queue in range(QUEUES):
            at, end = 0, self.client.one(highest_offset(topic, queue))
            while at < end:
                found = self.client.one(pull(topic, queue, at, 32))
                for record in records_of(found.records):
                    yield record.body, record.to_message().msg_id
                at = found.next_offset

    def close(self):
        self.client.close()
        self.cluster.close()

    def create(self, topic, **settings):
        self.client.create(topic, **{"read": QUEUES, "write": QUEUES} | settings)
        eventually(lambda: self.client.names.routes([topic], 5, fresh=True).get(topic))

    def messages(self, topic, count):
        """Return queue → the messages that Java's consumer gets, once there are so many."""

        def pulled():
            found = self.broker.pull([(topic, queue) for queue in range(QUEUES)])
            found = {queue: one["messages"] for (_, queue), one in found.items()}
            return found if sum(map(len, found.values())) == count else None

        return eventually(pulled)


@pytest.fixture(scope="module")
def written(java_version, tmp_path_factory):
    with java_version.broker(tmp_path_factory.mktemp("sink") / "store") as broker:
        written = Written(java_version, broker)
        yield written
        written.close()


def rows(bodies, **columns):
    return pa.record_batch({"body": pa.array(bodies, pa.binary())} | columns)


def bodies(found):
    return [base64.b64decode(one["body"]) for one in found]


def test_javas_consumer_reads_all_columns(written, topic):
    written.create(topic)
    noise = np.random.default_rng(1).bytes(5000)
    given = [b"first", b"", "ä".encode() * 3000, noise]
    keys = pa.array([["k1", "k2"], None, ["k3"], None], pa.list_(pa.string()))
    own = pa.array([[("own", "ä")], [], [], []], pa.map_(pa.string(), pa.string()))
    columns = {
        "keys": keys,
        "properties": own,
        "tags": pa.array(["a", None, "b", None]),
        "flag": pa.array([7, 0, None, -1], pa.int32()),
        "queueId": pa.array([1] * 4, pa.int32()),
    }
    sink = written.sink()
    assert sink.store_id == "rocketmq:DefaultCluster"
    sink.append(rows(given, **columns), topic=topic)
    found = written.messages(topic, 4)
    assert found[0] == []
    assert bodies(found[1]) == given
    assert [one["flag"] for one in found[1]] == [7, 0, 0, -1]
    properties = [one["properties"] for one in found[1]]
    assert [one.get("TAGS") for one in properties] == ["a", None, "b", None]
    assert [one.get("KEYS") for one in properties] == ["k1 k2", None, "k3", None]
    assert properties[0]["own"] == "ä"
    ids = [one["UNIQ_KEY"] for one in properties]
    assert len(set(ids)) == 4
    call = messages_of_key(topic, ids[2])
    by_id = eventually(lambda: written.client.one(call))
    assert bodies_of(by_id) == given[2:3]


def test_a_sent_message_is_where_the_answer_says(written, topic):
    written.create(topic)
    sink = written.sink()
    sink.append(rows([b"before"], queueId=pa.array([1], pa.int32())), topic=topic)
    result = sink.send(Message(topic=topic, body=b"sent", tags="a", keys=["k"], queue_id=1))
    assert (result.topic, result.queue_id, result.queue_offset) == (topic, 1, 1)
    _, found = written.messages(topic, 2)[1]
    assert (bodies([found]), found["properties"]["TAGS"]) == ([b"sent"], "a")
    assert found["properties"]["UNIQ_KEY"] == result.msg_id
    at = eventually(lambda: written.client.one(message_at(result.physical_offset, topic)))
    assert bodies_of(at) == [b"sent"]


def test_a_batch_of_long_bodies_is_compressed(written, topic):
    written.create(topic)
    given = [bytes([65 + number]) * 5000 for number in range(20)]
    written.sink().append(rows(given, queueId=pa.array([0] * 20)), topic=topic)
    found = written.messages(topic, 20)[0]
    assert bodies(found) == given
    assert all(one["storeSize"] < 1000 for one in found)


def test_many_rows_keep_the_order_of_their_keys(written, topic):
    written.create(topic)
    sink, keys = written.sink(), [f"k{number % 5}" for number in range(3000)]
    given = [b"%d" % number for number in range(3000)]
    for at in range(0, 3000, 1000):
        columns = {"shardingKey": pa.array(keys[at : at + 1000])}
        sink.append(rows(given[at : at + 1000], **columns), topic=topic)
    found = written.messages(topic, 3000)
    for queue in range(QUEUES):
        expected = [
            body
            for body, key in zip(given, keys, strict=True)
            if queue_for_key(key, QUEUES) == queue
        ]
        assert bodies(found[queue]) == expected


def test_the_longest_messages(written, topic):
    written.create(topic)
    sink = written.sink()
    with pytest.raises(MessageError, match="the maximum is 4194304"):
        sink.append(rows([b"x", b"x" * (4 << 20) + b"x"]), topic=topic)
    long = np.random.default_rng(1).bytes((4 << 20) - 1000)
    sink.append(rows([long] * 5), topic=topic)
    found = written.messages(topic, 5)
    assert [body == long for queue in found.values() for body in bodies(queue)] == [True] * 5


def test_rows_with_a_delay(written, topic):
    written.create(topic)
    sink, begun = written.sink(), time.time()
    levels = pa.array([1, None], pa.int32())
    sink.append(rows([b"later", b"now"], delayLevel=levels), topic=topic)
    found = written.messages(topic, 2)
    assert time.time() - begun >= 1
    (late,) = [one for each in found.values() for one in each if bodies([one]) == [b"later"]]
    assert late["properties"]["DELAY"] == "1"
    at = datetime.now(timezone.utc) + timedelta(seconds=2)
    due = rows([b"due"], deliverTimestamp=pa.array([at], pa.timestamp("us", "UTC")))
    if written.java.is_5:
        sink.append(due, topic=topic)
        written.messages(topic, 3)
        assert datetime.now(timezone.utc) >= at - timedelta(seconds=1)
        return
    with pytest.raises(UnsupportedError, match="RocketMQ 4"):
        sink.append(due, topic=topic)


def test_a_missing_topic_and_one_that_is_closed_to_senders(written, topic):
    with pytest.raises(TopicNotFoundError):
        written.sink().prepare(topic)
    written.create(topic, perm=4)
    with pytest.raises(MessageError, match="no queue of the topic"):
        written.sink().prepare(topic)


def test_a_broker_that_is_killed_while_rows_are_sent(java_version, tmp_path):
    """Each row is stored, and a row that is stored twice has one id."""
    folder, sent = tmp_path / "store", [b"%d" % number for number in range(20_000)]
    with java_version.broker(folder, brokerName="broker-k") as broker:
        written = Written(java_version, broker, "broker-k")
        written.create("killed")
        port, sink = broker.port, written.sink(seconds=90)
        sink.append(rows([b"first"]), topic="killed")
        killing = threading.Timer(0.2, broker.kill)
        killing.start()

        def send():
            for at in range(0, len(sent), 500):
                sink.append(rows(sent[at : at + 500]), topic="killed")

        sending = threading.Thread(target=send)
        sending.start()
        broker.process.wait(20)
    again = java_version.broker(folder, brokerName="broker-k", listenPort=port)
    again.port = port
    with again:
        sending.join(90)
        assert not sending.is_alive()
        eventually(lambda: len({*written.stored("killed")}) > len(sent))
        ids = defaultdict(set)
        for body, msg_id in written.stored("killed"):
            ids[body].add(msg_id)
        written.close()
    assert ids.keys() == {b"first", *sent}
    assert [(body, found) for body, found in ids.items() if len(found) > 1] == []
