"""The example's cluster runs, and `mqadmin` shows there what our commands show."""

import pytest
from cluster import Cluster
from interop.rocketmq import free_ports, is_free
from pyrocket.remoting.offsets import commit
from support.commands import document
from support.remoting_contract import Client

GROUP, TOPIC = "billing", "orders"


def free_port():
    port = free_ports()
    return port if all(is_free(port + 1035 + step) for step in (-2, 0, 1)) else free_port()


@pytest.fixture(scope="module", params=["4.9.7", "5.5.0"])
def cluster(request, tmp_path_factory):
    with Cluster(request.param, tmp_path_factory.mktemp("cluster"), free_port()) as running:
        running.mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", GROUP)
        for name in (TOPIC, f"%RETRY%{GROUP}"):
            running.create(name)
        client = Client([f"127.0.0.1:{running.port}"])
        for queue_id, count in enumerate((5, 3, 1)):
            client.send(TOPIC, *[b"x"] * count, queue_id=queue_id)
            client.one(commit(GROUP, TOPIC, queue_id, count // 2))
        client.close()
        yield running


def rows(output, first):
    """Return the rows of a table of mqadmin whose first word is this."""
    return [line.split() for line in output.splitlines() if line.split()[:1] == [first]]


def ours(cluster, *command):
    return document(*command, "--namesrv", f"127.0.0.1:{cluster.port}")


def test_the_lag_of_a_group_equals_mqadmins(cluster):
    lag = ours(cluster, "group", "lag", GROUP)["lag"]
    table = rows(cluster.mqadmin("consumerProgress", "-g", GROUP), TOPIC)
    keys = ("topic", "brokerName", "queueId", "maxOffset", "committedOffset")
    # RocketMQ 5 has no offset in the last queue, which mqadmin shows as 0.
    assert [[str(queue[key] or 0) for key in keys] for queue in lag] == [row[:5] for row in table]
    assert [queue["lag"] for queue in lag] == [3, 2, 1, 0]


def test_the_queues_of_a_topic_equal_mqadmins(cluster):
    queues = ours(cluster, "topic", "show", TOPIC)["queues"]
    table = rows(cluster.mqadmin("topicStatus", "-t", TOPIC), "broker-a")
    keys = ("queueId", "minOffset", "maxOffset")
    assert [[str(queue[key]) for key in keys] for queue in queues] == [row[1:4] for row in table]
    times = [f"{row[4]}T{row[5].replace(',', '.')}Z" if row[4:] else None for row in table]
    assert [queue["lastStoreTimestamp"] for queue in queues] == times
