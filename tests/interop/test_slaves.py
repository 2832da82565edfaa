"""Reads and commands while the master of a broker is dead: its slave has what is planned."""

import pyarrow as pa
import pytest
from pyrocket import Credentials, QueueRange, RocketMQCluster, RocketMQSink
from pyrocket.errors import TopicNotFoundError, TransportError
from pyrocket.formats.record_slice import decode_slices
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.requests import highest_offset, topic_offsets
from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.transport.namesrv import NamesrvTarget
from support.commands import document
from support.remoting_contract import Client, eventually
from support.transports import disconnect

ROWS = 3000


@pytest.fixture
def pair(java, tmp_path):
    """The address of a name server, and a master and its slave; see `write`."""
    master = java.broker(tmp_path / "master", brokerRole="ASYNC_MASTER")
    own = {"brokerId": 1, "brokerRole": "SLAVE", "slaveReadEnable": "true"}
    with master, java.broker(tmp_path / "slave", **own):
        yield f"127.0.0.1:{java.peer.port}", master
        disconnect()


def write(servers, topic):
    """Create a topic with one queue, write rows, and wait until the slave has them."""
    client = Client([servers])
    client.create(topic, 1, 1)
    eventually(lambda: client.names.routes([topic], 5, fresh=True).get(topic))
    cluster = RocketMQCluster([servers], Credentials())
    rows = pa.record_batch({"body": pa.array([b"%d" % number for number in range(ROWS)])})
    RocketMQSink(cluster, seconds=20).append(rows, topic=topic)
    cluster.close()
    eventually(lambda: client.one(highest_offset(topic, 0)) == ROWS)
    address = eventually(lambda: client.names.live_brokers(5)["broker-a"].addresses.get(1))
    client.close()
    slave = ConnectionPool(address, Credentials(), "slave")
    eventually(lambda: _end_at(slave, topic) == ROWS, 90)
    slave.close()
    return address


def _end_at(slave, topic):
    try:
        return slave.ask([topic_offsets(topic)], 5)[0][0].maximum
    except TopicNotFoundError:  # A slave copies the topics of its master every ten seconds.
        return 0


def test_planned_messages_are_read_from_the_slave_of_a_dead_master(pair):
    servers, master = pair
    slave = write(servers, "planned")
    target = NamesrvTarget(Endpoint(name_servers=(servers,), timeout_ms=20_000), ("planned",))
    source = target.open_source().by_broker()["broker-a"]
    ranges = [
        QueueRange(q, has.minimum, has.maximum) for q, has in source.bounds(["planned"]).items()
    ]
    assert sum(each.end - each.start for each in ranges) == ROWS
    master.kill()
    parts = decode_slices(source.slices(ranges), ["body"])
    found = [int(body.as_py()) for part in parts for body in part["body"]]
    assert found == [*range(ROWS)]
    listed = document("broker", "list", "--namesrv", servers)["brokers"]
    assert slave in str(listed)
    with pytest.raises(TransportError):
        RocketMQSink(target.cluster, seconds=3).append(
            pa.record_batch({"body": [b"x"]}), topic="planned"
        )
