"""Looking up a key among many, and what building the index adds to appending."""

import random
import time
from statistics import median

import pyarrow as pa
from bench.data import batch
from pyrocket import Store, StoreConfig
from pyrocket.disk.state_page import DISPATCHED, INDEXED
from pyrocket.index import key_builder

BODY_BYTES = 1024


def keyed(rows, body_bytes, first):
    """Rows with a unique key each."""
    columns = batch(rows, body_bytes)
    keys = pa.array([[f"order-{first + row}"] for row in range(rows)])
    return columns.set_column(columns.schema.get_field_index("keys"), "keys", keys)


def test_a_key_among_a_million(fast_disk, large, report):
    keys = 10**6 if large else 10**3
    with Store.open(fast_disk / "s", create=True) as store:
        store.create_topic("T", read_queues=2, write_queues=2)
        for first in range(0, keys, keys // 100):
            store.append_batch(keyed(keys // 100, 100, first), topic="T")
    wanted = [f"order-{number}" for number in random.Random(1).sample(range(keys), keys // 100)]
    with Store.open(fast_disk / "s", read_only=True) as store:
        for key in wanted[: len(wanted) // 10]:
            store.query("T", key)
        spent, worked = [], []
        for key in wanted:
            start, start_work = time.perf_counter(), time.thread_time()
            (found,) = store.query("T", key)
            worked.append(time.thread_time() - start_work)
            spent.append(time.perf_counter() - start)
            assert found.keys == (key,)
        by_id = []
        for key in wanted[:1000]:
            (message,) = store.query("T", key)
            start = time.perf_counter()
            assert store.message_by_id("T", message.msg_id) == message
            by_id.append(time.perf_counter() - start)
    report.line(
        f"look-up of a key in {keys:,} ({2 * keys:,} items): median {median(spent) * 1e3:.3f} ms,"
        f" p99 {late(spent) * 1e3:.3f} ms (of processor time {late(worked) * 1e3:.3f} ms); by"
        f" unique id {median(by_id) * 1e3:.3f} ms (hoped for: < 1 ms)"
    )


def late(times):
    """What 99 of 100 stay below."""
    return sorted(times)[len(times) * 99 // 100]


def test_building_the_index_beside_appending(fast_disk, large, report):
    """The same appends with and without an index in turn; then all of the log at once."""
    rows, rounds = (10_000, 30) if large else (100, 2)
    one = batch(rows, BODY_BYTES)
    seconds = {True: 0.0, False: 0.0}
    stores = {
        on: Store.open(fast_disk / str(on), create=True, config=StoreConfig(key_index=on))
        for on in seconds
    }
    for store in stores.values():
        store.append_batch(one, topic="T")
    for _ in range(rounds):
        for on, store in stores.items():
            start = time.perf_counter()
            store.append_batch(one, topic="T")
            seconds[on] += time.perf_counter() - start
    stores[True].close(clean=False)
    writer = stores[False]._writing()
    builder, turns = writer._keys, []
    builder._enabled = True
    begin = time.perf_counter()
    while writer.page[INDEXED] < writer.page[DISPATCHED]:
        start = time.perf_counter()
        with writer._turn(1000):
            builder._build_slice()
        turns.append(time.perf_counter() - start)
    building = time.perf_counter() - begin
    stores[False].close(clean=False)
    appended = rows * rounds
    built = appended + rows
    report.line(
        f"append {appended / seconds[False]:,.0f} messages/s of 1 KiB, with the index beside it"
        f" {appended / seconds[True]:,.0f}; built alone {built / building:,.0f} messages/s:"
        f" {building / built / (seconds[False] / appended):.0%} of the time of an append; longest"
        f" turn {max(turns) * 1e3:.0f} ms, {key_builder.SLICE_BYTES * 2 >> 20} MiB a turn at most"
    )
