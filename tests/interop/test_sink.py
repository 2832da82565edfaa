"""A broker continues a store in which a sink has published, and then the sink continues."""

from interop.compare import assert_same, bodies
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES
from pyrocket import Store
from support.sinks import QUERY, publish

ROWS = [f"row{n} ".encode().ljust(3000, b"x") for n in range(80)]
FROM_JAVA = [b"java%d" % n for n in range(30)]


def test_a_sink_continues_after_a_broker_has_used_the_store_between_two_batches(java, store_path):
    with Store.open(store_path, create=True, config=SIZES) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        publish(store, 0, ROWS, queue_id=0)
        publish(store, 1, ROWS[:3], queue_id=0)
    with java.broker(store_path, **SMALL) as broker:
        assert bodies(broker.pull([("t", 0)]), "t")[0] == ROWS + ROWS[:3]
        java.peer.send("t", [outgoing(body, queue=0) for body in FROM_JAVA])
        pulled = broker.pull([("t", 0)])
    assert_same(store_path, pulled)
    (store_path / "pyrocket" / "sink.json").unlink()
    with Store.open(store_path) as store:
        assert publish(store, 1, ROWS[:3], "run-2", queue_id=0).dropped
        assert publish(store, 2, [b"last"], "run-2", queue_id=0).rows == 1
        assert store.sink.last(QUERY, "t") == 2
        assert store.max_offset("t", 0) == len(ROWS) + 3 + len(FROM_JAVA) + 1
