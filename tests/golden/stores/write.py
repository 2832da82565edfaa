"""Writes the golden stores of one release. It is run only once, with that release's code.

    git worktree add ../old de38b47
    PYTHONPATH=../old/store python tests/golden/stores/write.py tests/golden/stores/de38b47

`clean` was closed, `unclean` is the state on disk when its writer was killed. `<name>.json`
contains the result of that release's own reader (`look.py`).
"""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from look import look
from pyrocket import (
    LocalTransactionState,
    Message,
    SinkBatch,
    Store,
    StoreConfig,
)

NOW = 1_700_000_000_000
SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000
SIZES = StoreConfig(
    log_file_bytes=4096, queue_file_entries=20, index_slots=20, index_items=80, flush="manual"
)


class Clock:
    """A clock that does not advance by itself."""

    now = NOW

    def __call__(self):
        return self.now


def delete_topic(store):
    """Write to a topic and delete it."""
    store.topics.create("gone", read_queues=1, write_queues=1)
    store.append(Message(topic="gone", body=b"deleted with its topic", queue_id=0))
    store.topics.delete("gone")


def write_messages(store, clock, numbers):
    """Write plain messages, keys, tags, properties, batches and compressed bodies."""
    store.topics.create("orders", read_queues=2, write_queues=2)
    for n in numbers:
        clock.now += 10
        store.append(
            Message(
                topic="orders",
                body=b"order %d" % n,
                tags="ab"[n % 2],
                keys=(f"o-{n}", "all"),
                properties={"region": "grün", "n": str(n)},
                queue_id=n % 2,
                flag=n,
            )
        )
    store.append(Message(topic="orders", body=b"long " * 2000, sharding_key="same"))
    store.append_batch(pa.record_batch({"body": [f"row {n}" for n in range(10)]}), topic="orders")


def write_delayed(store, clock):
    """Write messages with a level or a due time; some are delivered, some remain pending."""
    store.topics.create("later", read_queues=1, write_queues=1)
    for level, name in ((1, "soon"), (18, "in two hours")):
        store.append(Message(topic="later", body=name.encode(), delay_level=level))
    for after, name in (
        (2 * SECOND, "timer soon"),
        (DAY, "timer tomorrow"),
        (2 * DAY, "called off"),
    ):
        due = clock.now + after
        sent = store.append(Message(topic="later", body=name.encode(), deliver_at_ms=due))
    store.timers.cancel("later", sent.msg_id)
    clock.now += 10 * SECOND
    while store.deliver_due():
        pass


def write_transactions(store):
    """Write half messages: committed, rolled back, undecided."""
    store.topics.create("paid", read_queues=1, write_queues=1)
    for body, state in (
        (b"committed", LocalTransactionState.COMMIT),
        (b"rolled back", LocalTransactionState.ROLLBACK),
        (b"undecided", LocalTransactionState.UNKNOWN),
    ):
        message = Message(topic="paid", body=body, queue_id=0)
        request, _ = store.transactions.send_half("payers", message)
        store.transactions.end(request.half, state)


def write_batches(store, numbers):
    """Write exactly-once batches of a query and an application, and rows that are never
    published."""
    store.topics.create("sunk", read_queues=1, write_queues=1)
    for number in numbers:
        publish(store, SinkBatch(identity="stream-1", target="sunk", batch=number, run="run-1"))
    publish(store, SinkBatch(identity="app-1", target="orders", batch=numbers[-1]))


def stage(store, batch):
    """Stage two rows."""
    with store.sink.stage(batch, partition=0, attempt=0) as stager:
        rows = [f"{batch.identity} {batch.batch} {n}" for n in range(2)]
        stager.append(pa.record_batch({"body": rows}), topic=batch.target)
        return [stager.finish()]


def publish(store, batch):
    """Stage and publish."""
    store.sink.publish(batch, stage(store, batch))


def write_first_half(root, clock):
    """Write data of every kind, without a clean shutdown."""
    with Store.open(root, create=True, config=SIZES, clock=clock) as store:
        delete_topic(store)
        write_messages(store, clock, range(12))
        write_delayed(store, clock)
        write_batches(store, [0, 1])
        store.groups.create("audit")
        store.groups.commit("billing", "orders", {0: 3, 1: 2})
        store.flush()
        # The recovery at the next opening reads this file, as after a kill.
        killed = root.with_name("killed")
        shutil.copytree(root, killed)
    return killed


def write_second_half(root, clock):
    """Recover, which begins an epoch; then write checksums of properties, and clean the oldest
    files.
    """
    with Store.open(root, config=replace(SIZES, property_crc=True), clock=clock) as store:
        write_messages(store, clock, range(12, 24))
        write_transactions(store)
        write_batches(store, [2, 3])
        store.groups.commit("audit", "sunk", {0: 4})
        store.flush()
        # A pending message of a delay level keeps its log file.
        clock.now += 3 * HOUR
        while store.deliver_due():
            pass
        report = store.clean(total_bytes=16 * 1024)
        assert report.removals, report
        write_delayed(store, clock)
        left = SinkBatch(identity="stream-2", target="sunk", batch=0, run="run-1")
        stage(store, left)
        store.flush()
        copy(root, root.with_name("unclean"))
        keep(root.with_name("unclean"), store, clock)
    with Store.open(root, read_only=True, clock=clock) as store:
        keep(root.with_name("clean"), store, clock)
    copy(root, root.with_name("clean"))
    shutil.rmtree(root)


def copy(root, target):
    """Copy a store without `timerlog`, 100 MiB that a later clean shutdown writes again."""
    shutil.copytree(root, target, ignore=shutil.ignore_patterns("timerlog"))


def keep(path, store, clock):
    """Write the content that a reader sees to a JSON file beside the store."""
    seen = {"now": clock.now, **look(store)}
    text = json.dumps(seen, indent=1, ensure_ascii=False)
    path.with_name(f"{path.name}.json").write_text(f"{text}\n")


def main(target):
    """Write the stores of this release into a new folder."""
    target.mkdir(parents=True)
    clock = Clock()
    live = target / "live"
    killed = write_first_half(live, clock)
    shutil.rmtree(live)
    write_second_half(killed, clock)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
