"""Delay levels: a RocketMQ broker delivers the pending messages of pyrocket's store, and pyrocket
those of the broker's store.
"""

import time

import pytest
from interop.compare import all_bodies, assert_same
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES
from interop.workload import steady, wait_until
from pyrocket import Store
from support.delivering import delay

OURS_EARLY = [b"early%d" % number for number in range(4)]
OURS_LATE = [b"late%d" % number for number in range(6)]


def delivered(store, topic="t"):
    return sorted(
        one.body for queue in store.offsets(topic) for one in store.read(topic, queue, 0, 100)
    )


def park(path):
    """Append four messages that are delivered, and six with a delay of five seconds."""
    with Store.open(path, create=True, config=SIZES) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        for number, body in enumerate(OURS_EARLY):
            delay(store, 1, body, queue_id=number % 2)
        for number, body in enumerate(OURS_LATE):
            delay(store, 2, body, queue_id=number % 2, tags="L", keys=[body.decode()])
        wait_until(store.deliver_due)
        assert delivered(store) == OURS_EARLY


def test_a_broker_delivers_messages_pending_in_pyrockets_store_once(java, store_path):
    park(store_path)
    with java.broker(store_path, **SMALL) as broker:
        wait_until(lambda: len(all_bodies(broker.pull(), "t")) >= 10)
        pulled = steady(broker)
        assert sorted(all_bodies(pulled, "t")) == OURS_EARLY + OURS_LATE
        broker.stop()
    assert_same(store_path, pulled)
    with Store.open(store_path) as store:
        assert store.views.pending("scheduled") == []
        store.deliver_due()
        assert delivered(store) == OURS_EARLY + OURS_LATE
        assert [one.tags for one in store.lookup.query("t", "late3")] == ["L"]


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_pyrocket_delivers_messages_pending_in_a_brokers_store_once(java, store_path, ending):
    early = [b"java early%d" % number for number in range(3)]
    late = [b"java late%d" % number for number in range(5)]
    with java.broker(store_path, **SMALL) as broker:
        java.peer.send("t", [outgoing(body, delay=1, tags="E") for body in early], queues=2)
        java.peer.send("t", [outgoing(body, delay=3, tags="L") for body in late], queues=2)
        wait_until(lambda: sorted(all_bodies(broker.pull(), "t")) == early)
        getattr(broker, ending)()
    with Store.open(store_path) as store:
        waits = [
            body.as_py()
            for part in store.views.pending("scheduled")
            for batch in store.views.scan_pending(part, ["t"], ["body"])
            for body in batch.column("body")
        ]
        # A broker may take so long to stop that it delivers some messages in the meantime.
        assert sorted(delivered(store) + waits) == early + late, (
            "a message that the broker delivered is delivered again"
        )
        with store.run_services():
            wait_until(lambda: len(delivered(store)) >= 8)
            time.sleep(0.5)
        assert delivered(store) == early + late
    with java.broker(store_path, **SMALL) as broker:
        time.sleep(3)
        assert sorted(all_bodies(broker.pull(), "t")) == early + late
