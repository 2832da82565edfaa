"""A pyrocket writer dies during a batch over several log files; then a RocketMQ broker opens the
store.
"""

import os
import subprocess
import sys

import pytest
from interop.compare import assert_same, bodies
from interop.dying import ROWS
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES
from pyrocket import Store
from pyrocket.disk.shared_state import PUBLISHED
from support.sinks import publish
from support.stores import batch, log_files

BEFORE = [b"before%d" % n for n in range(20)]
NEVER, DIED = 10**6, 9


def make(path):
    with Store.open(path, create=True, config=SIZES) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(batch(BEFORE, 0), topic="t")
    return path


def append_and_die(path, step, trace, kind):
    """Append in a process that dies during the write number `step`; return the exit status."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "interop.dying", path, step, trace, kind]
    return subprocess.run(
        list(map(str, command)), env=environment, check=False, timeout=60
    ).returncode


def writes_of_an_append(path, trace, kind):
    """Return the number of writes of an append before it is published."""
    assert append_and_die(make(path), NEVER, trace, kind) == 0
    assert len(log_files(path)) > 3
    steps = trace.read_text().splitlines()
    return steps[: steps.index(f"word {PUBLISHED}")].count("write_at")


@pytest.mark.parametrize("kind", ["whole", "plain", "sink"])
@pytest.mark.parametrize("back", [1, 3])
def test_a_broker_and_pyrocket_continue_after_an_incomplete_batch(
    java, store_path, tmp_path, kind, back
):
    """The broker reads a complete batch or none of it; an incomplete batch of a sink can be
    published again.

    The broker may keep the first rows of an incomplete plain batch; pyrocket then reads them, too.
    """
    writes = writes_of_an_append(tmp_path / "rehearsal", tmp_path / "rehearsed", kind)
    assert append_and_die(make(store_path), writes - back, tmp_path / "trace", kind) == DIED
    with java.broker(store_path, **SMALL) as broker:
        found = bodies(broker.pull([("t", 0)]), "t")[0]
        assert found == (BEFORE + [row.encode() for row in ROWS])[: len(found)]
        assert len(found) >= len(BEFORE)
        if kind != "plain":
            assert found == BEFORE
        java.peer.send("t", [outgoing(b"after%d" % n, queue=0) for n in range(30)])
        pulled = broker.pull([("t", 0)])
        assert bodies(pulled, "t")[0][:-30] == found
    assert_same(store_path, pulled)
    with Store.open(store_path) as store:
        assert store.max_offset("t", 0) == pulled["t", 0]["max"]
        if kind == "sink":
            rows = [row.encode() for row in ROWS]
            assert not publish(store, 0, rows, "run-2", queue_id=0).dropped
            assert store.max_offset("t", 0) == pulled["t", 0]["max"] + len(rows)
