"""The cost of exactly-once: the sink compared with at-least-once, and a publication alone."""

import shutil
import time
from functools import partial

from bench.data import batch
from bench.pairs import MIB, ROUNDS, cpu_seconds, measure
from pyrocket import SinkBatch, Store

TASKS = 2
LARGE_ROWS = 2_200_000
"""The number of rows of 1 KiB: more than 2 GiB in total."""


def write_once(spark, path, rows, delivery, clock):
    """Write rows of 1 KiB to a new store, and delete the store; return the duration of the write
    alone.
    """
    body = "cast(rpad(cast(id as string), 1024, 'x') as binary) AS body"
    frame = spark.range(0, rows, 1, TASKS).selectExpr(body)
    with Store.open(path, create=True) as store:
        store.topics.create("T", read_queues=TASKS, write_queues=TASKS)
    start = clock()
    options = {"path": str(path), "topic": "T", "delivery": delivery}
    frame.write.format("pyrocket").mode("append").options(**options).save()
    spent = clock() - start
    with Store.open(path, read_only=True) as store:
        assert sum(queue.maximum for queue in store.offsets("T").values()) == rows
    shutil.rmtree(path)
    return spent


def beside_at_least_once(spark, path, rows, rounds, clock):
    write = partial(write_once, spark, path, rows, clock=clock)
    return measure(
        lambda: write(delivery="exactly-once"), lambda: write(delivery="at-least-once"), rounds
    )


def test_exactly_once_in_memory_beside_at_least_once(spark, fast_disk, large, report):
    rows, rounds = (400_000, ROUNDS) if large else (2_000, 1)
    report.share(
        "Spark batch write in memory, 1 KiB, exactly-once beside at-least-once",
        lambda: beside_at_least_once(spark, fast_disk / "store", rows, rounds, cpu_seconds),
        rows,
        0.7,
    )


def test_exactly_once_on_disk_beside_at_least_once(spark, tmp_path, large, report):
    """Both writes are durable at the end: at-least-once calls fsync for each task, exactly-once for
    each write.
    """
    rows, rounds = (LARGE_ROWS, 3) if large else (2_000, 1)
    pair = beside_at_least_once(spark, tmp_path / "store", rows, rounds, time.perf_counter)
    name = "Spark batch write to disk, 1 KiB, exactly-once beside at-least-once"
    report.rate(name, pair, rows / 1e6, "M rows", "≥ 70 %")


def test_publication_alone(tmp_path, fast_disk, large, report):
    """The driver's work for all tasks, compared with a plain copy of the staged files."""
    rows, rounds = (1_000_000, 3) if large else (2_000, 1)
    one = batch(min(rows // TASKS, 10_000), 1024)
    path, numbers = fast_disk / "store", iter(range(100))
    with Store.open(path, create=True) as store:
        store.topics.create("T", read_queues=TASKS, write_queues=TASKS)

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
    report.line(f"publication takes {pair.ours / rows * 1e6:.2f} µs per row")
