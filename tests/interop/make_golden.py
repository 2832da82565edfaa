"""Runs a RocketMQ broker that writes a small store, and records the messages that its client pulls.

Usage: python -m interop.make_golden VERSION DIRECTORY, from `tests/`; VERSION as in `maven.py`.
Creates DIRECTORY and DIRECTORY.json. Existing files are never overwritten: they prove that old
bytes remain readable.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from interop.maven import class_path
from interop.rocketmq import Broker, Peer, outgoing
from interop.workload import STATES, settled, wait_until

TINY = {
    "mappedFileSizeCommitLog": 4096,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "timerWheelEnable": "false",
    "fileReservedTime": 72,
}
NOT_OF_THE_STORE = ("rocksdbstore", "compaction", "timerwheel", "timerlog")


def write(peer, broker):
    """Write the messages; return all pulled messages once all messages have arrived."""
    hellos = [
        outgoing(b"hello%d" % n, tags="TagA", keys=f"ORDER{n} K2", flag=n, queue=n % 2)
        for n in range(25)
    ]
    peer.send("TopicTest", hellos, queues=2)
    rows = [outgoing(b"row%d" % n, keys=f"row{n}") for n in range(12)]
    peer.send("batch", rows, batch=True, queues=1)
    for kind in ("ZLIB", "LZ4", "ZSTD"):
        packed = outgoing(kind.encode() * 2000, tags=kind, keys=kind)
        peer.send("packed", [packed], compression=kind, queues=1)
    peer.send("late", [outgoing(b"late%d" % n, delay=1, tags="L") for n in range(2)], queues=1)
    halves = [outgoing(state.encode(), keys=state, tags="P", state=state) for state in STATES]
    peer.ask("transaction", topic="paid", group="payers", messages=halves)
    peer.send("work", [outgoing(b"good"), outgoing(b"bad")], queues=1)
    peer.consume("work", "workers", attempts=3)
    counts = {"TopicTest": 25, "batch": 12, "packed": 3, "late": 2, "work": 2}
    sent = {topic: [None] * count for topic, count in counts.items()}
    return wait_until(lambda: settled(broker, sent))


def make(version, target):
    """Write the store at `target`, and its content to a JSON file beside the store."""
    assert not target.exists(), f"{target} already exists"
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        classes = class_path(version, here / "cache")
        peer = Peer(classes, here / "peer")
        try:
            with Broker(peer, classes, here / "broker", here / "store", **TINY) as broker:
                pulled = write(peer, broker)
                broker.stop()
        finally:
            peer.close()
        for name in NOT_OF_THE_STORE:
            shutil.rmtree(here / "store" / name, ignore_errors=True)
        shutil.copytree(here / "store", target)
    text = json.dumps(list(pulled.values()), indent=0, sort_keys=True)
    target.with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]).absolute())
