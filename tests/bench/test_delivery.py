"""What exactly-once costs: the sink beside at-least-once, and a publication by itself."""

import shutil
import time

import pytest
from bench.data import batch
from bench.pairs import MIB, measure
from pyrocket import SinkBatch, Store

TASKS = 2
LARGE_ROWS = 2_200_000
"""Of 1 KiB: more than 2 GiB."""


@pytest.mark.parametrize("disk", ["memory", "disk"])
def test_exactly_once_beside_at_least_once(spark, tmp_path, fast_disk, large, report, disk):
    """Both durable when the write ends: one fsync a task there, one a write here."""
    rows, rounds = (LARGE_ROWS, 3) if large else (2_000, 1)
    body = "cast(rpad(cast(id as string), 1024, 'x') as binary) AS body"
    frame = spark.range(0, rows, 1, TASKS).selectExpr(body)
    path = (fast_disk if disk == "memory" else tmp_path) / "store"

    def write(delivery):
        with Store.open(path, create=True) as store:
            store.create_topic("T", read_queues=TASKS, write_queues=TASKS)
        start = time.perf_counter()
        options = {"path": str(path), "topic": "T", "delivery": delivery}
        frame.write.format("pyrocket").mode("append").options(**options).save()
        spent = time.perf_counter() - start
        with Store.open(path, read_only=True) as store:
            assert sum(queue.maximum for queue in store.offsets("T").values()) == rows
        shutil.rmtree(path)
        return spent

    pair = measure(lambda: write("exactly-once"), lambda: write("at-least-once"), rounds)
    name = f"Spark batch write to {disk}, 1 KiB, exactly-once beside at-least-once"
    report.rate(name, pair, rows / 1e6, "M rows", "≥ 70 %")


def test_publication_by_itself(tmp_path, fast_disk, large, report):
    """What the driver does for all tasks, beside a plain copy of the staged files."""
    rows, rounds = (1_000_000, 3) if large else (2_000, 1)
    one = batch(min(rows // TASKS, 10_000), 1024)
    path, numbers = fast_disk / "store", iter(range(100))
    with Store.open(path, create=True) as store:
        store.create_topic("T", read_queues=TASKS, write_queues=TASKS)

        def stage():
            sink_batch = SinkBatch(identity="bench", target="T", batch=next(numbers))
            staged = []
            for partition in range(TASKS):
                with store.sink.stage(sink_batch, partition=partition, attempt=0) as stager:
                    for _ in range(rows // len(one) // TASKS):
                        stager.append(one, topic="T", first_queue=partition)
                    staged.append(stager.finish())
            return sink_batch, staged

        def publish():
            sink_batch, staged = stage()
            start = time.perf_counter()
            published = store.sink.publish(sink_batch, staged)
            assert published.rows == sum(each.rows for each in staged)
            return time.perf_counter() - start

        def copy():
            _, staged = stage()
            folder = path / "pyrocket" / "staging"
            files = [part for each in staged for part in folder.glob(f"{each.name}*")]
            assert sum(file.stat().st_size for file in files) > sum(each.bytes for each in staged)
            start = time.perf_counter()
            for number, file in enumerate(files):
                with file.open("rb") as source, (fast_disk / f"copy{number}").open("wb") as target:
                    shutil.copyfileobj(source, target, 4 * MIB)
            spent = time.perf_counter() - start
            store.sink.discard(staged)
            return spent

        pair = measure(publish, copy, rounds)
    report.rate("publication, 1 KiB, in memory, beside a copy", pair, rows / 1e6, "M rows")
    report.line(f"publication costs {pair.ours / rows * 1e6:.2f} µs a row")
