"""A RocketMQ broker opens a store in which a repair has replaced corrupt messages by
placeholders.
"""

import shutil

import pytest
from interop.compare import bodies
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES
from pyrocket import Store
from pyrocket.errors import RecordDamagedError
from pyrocket.tools.repair.run import repair
from support.stores import batch, log_files, overwrite

COUNT, LOST = 200, 40
WRITTEN = [b"ours%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("queues", ["kept", "lost"])
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "unclean"])
def test_a_broker_continues_after_a_placeholder_and_returns_it_with_its_marker(
    java, store_path, queues, clean
):
    """All other messages keep their offsets, even after the broker has rebuilt the queue."""
    with Store.open(store_path, create=True, config=SIZES) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(batch(WRITTEN, 0), topic="t")
        place = store.read("t", 0, LOST, 1)[0].physical_offset
    (file,) = [each for each in log_files(store_path) if 0 <= place - int(each.name) < 64 * 1024]
    overwrite(file, b"\xff", place - int(file.name) + 90)
    assert repair(store_path).after.ok
    if queues == "lost":
        shutil.rmtree(store_path / "consumequeue")
    if not clean:
        (store_path / "abort").touch()
    with java.broker(store_path, **SMALL) as broker:
        pulled = broker.pull([("t", 0)])
        found = bodies(pulled, "t")[0]
        assert found[:LOST] + found[LOST + 1 :] == WRITTEN[:LOST] + WRITTEN[LOST + 1 :]
        marked = pulled["t", 0]["messages"][LOST]
        assert marked["properties"]["PYROCKET_DAMAGED"] == "true"
        java.peer.send("t", [outgoing(b"after%d" % number, queue=0) for number in range(30)])
        again = broker.pull([("t", 0)])
        assert bodies(again, "t")[0] == [*found, *(b"after%d" % number for number in range(30))]
        broker.stop()
    with Store.open(store_path) as store:
        assert store.max_offset("t", 0) == COUNT + 30
        with pytest.raises(RecordDamagedError, match="placeholder"):
            store.read("t", 0, LOST, 1)
        kept = store.read("t", 0, LOST + 1, 1000)
        assert [each.body for each in kept] == bodies(again, "t")[0][LOST + 1 :]
