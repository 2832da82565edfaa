"""Looking up a key among many, and the cost of building the index while appending."""

import random
import time
from statistics import median

import pyarrow as pa
from bench.data import batch
from pyrocket import Message, Store, StoreConfig
from pyrocket.disk.shared_state import DISPATCHED, INDEXED
from pyrocket.engine import message_encoder
from pyrocket.formats import record_batch
from pyrocket.index.keys.index_builder import IndexBuilder
from support.inner import inner

BODY_BYTES = 1024


def keyed(rows, body_bytes, first):
    """Return rows with a unique key each."""
    columns = batch(rows, body_bytes)
    keys = pa.array([[f"order-{first + row}"] for row in range(rows)])
    return columns.set_column(columns.schema.get_field_index("keys"), "keys", keys)


def test_a_key_among_a_million(fast_disk, large, report):
    keys = 10**6 if large else 10**3
    with Store.open(fast_disk / "s", create=True) as store:
        store.topics.create("T", read_queues=2, write_queues=2)
        for first in range(0, keys, keys // 100):
            store.append_batch(keyed(keys // 100, 100, first), topic="T")
    wanted = [f"order-{number}" for number in random.Random(1).sample(range(keys), keys // 100)]
    with Store.open(fast_disk / "s", read_only=True) as store:
        for key in wanted[: len(wanted) // 10]:
            store.lookup.query("T", key)
        spent, worked = [], []
        for key in wanted:
            start, start_work = time.perf_counter(), time.thread_time()
            (found,) = store.lookup.query("T", key)
            worked.append(time.thread_time() - start_work)
            spent.append(time.perf_counter() - start)
            assert found.keys == (key,)
        by_id = []
        for key in wanted[:1000]:
            (message,) = store.lookup.query("T", key)
            start = time.perf_counter()
            assert store.lookup.by_id("T", message.msg_id) == message
            by_id.append(time.perf_counter() - start)
    report.line(
        f"look-up of a key in {keys:,} ({2 * keys:,} items): median {median(spent) * 1e3:.3f} ms,"
        f" p99 {late(spent) * 1e3:.3f} ms (of processor time {late(worked) * 1e3:.3f} ms); by"
        f" unique id {median(by_id) * 1e3:.3f} ms (hoped for: < 1 ms)"
    )


def late(times):
    """Return the 99th percentile."""
    return sorted(times)[len(times) * 99 // 100]


def test_building_the_index_beside_appending(fast_disk, large, report, monkeypatch):
    """The same appends run with and without an index, alternately. Then the index is built from a
    complete log.
    """
    rows, rounds = (10_000, 30) if large else (100, 2)
    one = batch(rows, BODY_BYTES)
    spent = {True: 0.0, False: 0.0}
    stores = {
        on: Store.open(fast_disk / str(on), create=True, config=StoreConfig(key_index=on))
        for on in spent
    }
    for store in stores.values():
        store.append_batch(one, topic="T")
    parts = [
        (record_batch, "keys_of_batch"),
        (IndexBuilder, "add_pending"),
        (IndexBuilder, "_build_slice"),
    ]
    costs = [cost_of(monkeypatch, *part) for part in parts]
    for _ in range(rounds):
        for on, store in stores.items():
            start = time.process_time()
            store.append_batch(one, topic="T")
            spent[on] += time.process_time() - start
    stores[True].close(clean=False)
    appended = rows * rounds
    # Both stores hash the keys; only one of them saves and indexes them.
    hashing, saving, putting = (sum(cost) / appended * 1e6 for cost in costs)
    hashing /= 2
    longest = max(costs[2], default=0)
    monkeypatch.undo()
    built, building = build_from_log(stores[False])
    report.line(
        f"append: µs of processor time per message of 1 KiB: {spent[False] / appended * 1e6:.2f}"
        f" without an index, {spent[True] / appended * 1e6:.2f} with an index: hashing the keys"
        f" {hashing:.2f}, saving them under the lock {saving:.2f}, adding them to the index"
        f" {putting:.2f}, in slices of at most {longest * 1e3:.0f} ms (hoped for: < 0.5 in all,"
        f" < 0.3 under the lock); building the index from the log {building / built * 1e6:.2f}"
    )


def cost_of(monkeypatch, owner, name):
    """Return a list to which each later call of a function adds its processor time."""
    real, costs = getattr(owner, name), []

    def timed(*given):
        start = time.process_time()
        try:
            return real(*given)
        finally:
            costs.append(time.process_time() - start)

    monkeypatch.setattr(owner, name, timed)
    return costs


def build_from_log(store):
    """Index a log that has no index; return the number of messages and the processor time."""
    writer, start = inner(store).writer, time.process_time()
    builder = inner(store).keys
    builder._enabled = True
    while writer.page[INDEXED] < writer.page[DISPATCHED]:
        with writer._locked(1000):
            builder._build_slice()
    building = time.process_time() - start
    built = sum(known.maximum for known in store.offsets("T").values())
    store.close(clean=False)
    return built, building


def test_saving_the_keys_of_single_messages(fast_disk, large, report, monkeypatch):
    count = 10_000 if large else 100
    with Store.open(fast_disk / "s", create=True, config=StoreConfig(flush="manual")) as store:
        store.topics.create("T", read_queues=1, write_queues=1)
        hashing = cost_of(monkeypatch, message_encoder, "keys_of_message")
        saving = cost_of(monkeypatch, IndexBuilder, "add_pending")
        start = time.process_time()
        for number in range(count):
            store.append(Message(topic="T", body=b"x" * 100, keys=[f"order-{number}"]))
        whole = (time.process_time() - start) / count
    report.line(
        f"append of one message {whole * 1e6:.0f} µs of processor time: hashing its keys"
        f" {median(hashing) * 1e6:.0f} µs, saving them under the lock {median(saving) * 1e6:.0f} µs"
        " (hoped for: < 20)"
    )
