"""The cost of storing, keeping and delivering a million timers over weeks."""

import re
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from bench.data import batch
from bench.pairs import MIB, Pair
from pyrocket import Message, Store, StoreConfig
from support.inner import inner
from support.stores import FakeClock

WEEKS_MS = 5 * 7 * 86_400_000
CONFIG = StoreConfig(flush="manual")


def timers(rows, clock, ahead_ms, body_bytes=100):
    """Return messages with random due times, at most `ahead_ms` ahead."""
    dues = clock.now + 1 + np.random.default_rng(1).integers(0, ahead_ms, rows)
    plain = batch(rows, body_bytes)
    return plain.append_column("deliverTimestamp", pa.array(dues).cast(pa.timestamp("ms", "UTC")))


def spent(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def own_mib():
    return int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def test_a_million_pending_timers(fast_disk, large, report):
    rows, step = (1_000_000, 10_000) if large else (2_000, 500)
    clock, path = FakeClock(), fast_disk / "store"
    with Store.open(path, create=True, clock=clock, config=CONFIG) as store:
        store.topics.create("T", read_queues=2, write_queues=2)
        empty = _opening(path, clock)
        plain, one = batch(step, 100), timers(step, clock, WEEKS_MS)
        plainly = sum(spent(lambda: store.append_batch(plain, topic="T")) for _ in range(10))
        sending = sum(
            spent(lambda: store.append_batch(one, topic="T")) for _ in range(rows // step)
        )
        pair = Pair(sending / rows, plainly / 10 / step, plainly / 10 / step * rows / sending)
        report.rate(f"send {rows:,} timers of 100 B, beside plain messages", pair, 1e-6, "M")
        before = own_mib()
        taking = spent(lambda: _take_all_in(store))
        report.line(f"index them: {rows / taking / 1e6:.2f} M/s, {own_mib() - before:.0f} MiB more")
        size = sum(file.stat().st_size for file in (path / "pyrocket" / "timers").iterdir())
        files = len(list((path / "pyrocket" / "timers").iterdir()))
        report.line(f"they take {size / MIB:.0f} MiB in {files} files")
        counting = spent(store.timers.count)
        assert store.timers.count() == rows
        report.line(f"count them: {counting * 1000:.0f} ms")
        opening = _opening(path, clock)
        report.line(f"open: {opening * 1000:.1f} ms with them, {empty * 1000:.1f} ms without")
        _deliver_one_by_one(store, clock, report)
        _cancel(store, clock, report)
        closing = spent(store.close)
    report.line(f"clean shutdown, with the files for a RocketMQ 5 broker: {closing:.2f} s")


def _take_all_in(store):
    writer = inner(store).writer
    while True:
        with writer.try_exclusive():
            if not store.timers.service.index_new(writer):
                return


def _opening(path, clock):
    def open_and_close():
        Store.open(path, clock=clock, config=CONFIG).close(clean=False)

    return median(spent(open_and_close) for _ in range(11))


def _deliver_one_by_one(store, clock, report):
    service, writer, times = store.timers.service, inner(store).writer, []
    before = own_mib()
    service.deliver_due(writer, clock.now)
    for _ in range(200):
        with writer.try_exclusive():
            due = service.next_due(writer, clock.now)
        clock.now = due
        times.append(spent(lambda: service.deliver_due(writer, clock.now)))
    report.line(
        f"deliver one of them: {median(times) * 1000:.2f} ms, at most {max(times) * 1000:.0f} ms;"
        f" {own_mib() - before:.0f} MiB more"
    )


def _cancel(store, clock, report):
    due = clock.now + WEEKS_MS // 2
    ids = [
        store.append(Message(topic="T", body=b"x", deliver_at_ms=due + n)).msg_id for n in range(50)
    ]
    times = [spent(lambda one=one: store.timers.cancel("T", one)) for one in ids]
    report.line(f"cancel one: {median(times) * 1000:.2f} ms")


def test_delivering_many_timers_due_in_one_minute(fast_disk, large, report):
    rows = 300_000 if large else 2_000
    clock, path = FakeClock(), fast_disk / "store"
    with Store.open(path, create=True, clock=clock, config=CONFIG) as store:
        store.topics.create("T", read_queues=2, write_queues=2)
        step = min(rows, 10_000)
        for _ in range(rows // step):
            store.append_batch(timers(step, clock, 60_000, 1024), topic="T")
        _take_all_in(store)
        clock.now += 60_001
        service, writer = store.timers.service, inner(store).writer

        def deliver():
            while service.deliver_due(writer, clock.now):
                pass

        delivering = spent(deliver)
        found = sum(one.maximum - one.minimum for one in store.offsets("T").values())
        assert found == rows
        one = batch(step, 1024)
        plainly = sum(
            spent(lambda: store.append_batch(one, topic="T")) for _ in range(rows // step)
        )
        pair = Pair(delivering, plainly, plainly / delivering)
        report.rate(
            "deliver timers of 1 KiB due in a minute, beside appends", pair, rows / 1e6, "M"
        )
        store.close(clean=False)
