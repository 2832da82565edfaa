"""The cost per row of publishing a batch, compared with plain appends, and the memory that it
uses.
"""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from bench.data import batch
from pyrocket import Message, SinkBatch, Store, StoreConfig

MANUAL = StoreConfig(flush="manual")
AT_ONCE = 10_000
QUEUES = 4


def store_at(path):
    with Store.open(path, create=True) as store:
        store.topics.create("T", read_queues=QUEUES, write_queues=QUEUES)
    return Store.open(path, config=MANUAL)


def stage(store, number, rows, body_bytes):
    """Stage rows as two consecutive tasks."""
    one = SinkBatch(identity="bench", target="T", batch=number)
    some, staged = batch(min(rows, AT_ONCE), body_bytes, rich=False), []
    for partition in range(2):
        with store.sink.stage(one, partition=partition, attempt=0) as stager:
            for first in range(0, rows // 2, AT_ONCE):
                stager.append(some.slice(0, rows // 2 - first), topic="T", first_queue=first)
            staged.append(stager.finish())
    return one, staged


def append(store, rows, body_bytes):
    some = batch(min(rows, AT_ONCE), body_bytes, rich=False)
    for first in range(0, rows, AT_ONCE):
        store.append_batch(some.slice(0, rows - first), topic="T", first_queue=first)
    store.flush()


def timed(function, *arguments):
    begin = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - begin, result


def test_publishing_beside_appending(tmp_path, large, report):
    """One process on one core does all the work; in Spark, tasks stage in parallel, and one process
    publishes.
    """
    rows = 1024 * 1024 if large else 2000
    for number in range(3 if large else 1):
        with store_at(tmp_path / str(number)) as store:
            stage_s, (one, staged) = timed(stage, store, 0, rows, 1024)
            first_s, _ = timed(store.sink.publish, one, staged)
            again_s, (one, staged) = timed(stage, store, 1, rows, 1024)
            second_s, _ = timed(store.sink.publish, one, staged)
            append_s, _ = timed(append, store, rows, 1024)
        report.line(
            f"{rows:,} rows of 1 KiB: staged in {stage_s:.2f} s, into reused files in"
            f" {again_s:.2f} s; published in {first_s:.2f} and {second_s:.2f} s,"
            f" {second_s / rows * 1e6:.2f} µs a row; appended and flushed in {append_s:.2f} s"
        )


def test_the_delay_of_other_writers(tmp_path, large, report):
    """The write lock is held while a batch is copied and fsynced."""
    rows = 1024 * 1024 if large else 2000
    with store_at(tmp_path / "store") as store, Store.open(tmp_path / "store") as other:
        one, staged = stage(store, 0, rows, 1024)
        done, waits = threading.Event(), []

        def append_meanwhile():
            while not waits or not done.is_set():
                seconds, _ = timed(other.append, Message(topic="T", body=b"x"))
                waits.append(seconds)
                time.sleep(0.005)

        thread = threading.Thread(target=append_meanwhile)
        thread.start()
        seconds, _ = timed(store.sink.publish, one, staged)
        done.set()
        thread.join()
        report.line(
            f"{rows:,} rows of 1 KiB published in {seconds:.2f} s: another writer waited for"
            f" {max(waits):.2f} s at most"
        )


GROWTH_MIB = 48
"""How much more memory ten times as many rows may use, for caches and by chance."""

MEASURED = """
import sys
from bench.test_sink import MANUAL, most_of, stage
from pyrocket import Store
path, rows = sys.argv[1], int(sys.argv[2])
with Store.open(path, config=MANUAL) as store:
    one, staged = stage(store, 0, rows, 100)
    published, most, seconds = most_of(lambda: store.sink.publish(one, staged))
assert published.rows == rows
print(most, seconds)
"""


def most_of(function):
    """Return the function's result, the maximum private memory during the call in MiB, and the
    duration in seconds.
    """
    most, done = [own_mib()], threading.Event()

    def watch():
        while not done.wait(0.01):
            most.append(own_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    seconds, result = timed(function)
    done.set()
    watcher.join()
    return result, max(most), seconds


def own_mib():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc for the memory of a process")
def test_memory_of_a_publication_does_not_grow(tmp_path, large, report):
    most_by_rows = {}
    for rows in (10**6, 10**7) if large else (10**4, 10**5):
        path = tmp_path / str(rows)
        store_at(path).close()
        command = [sys.executable, "-c", MEASURED, str(path), str(rows)]
        folder = Path(__file__).resolve().parent.parent
        output = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=folder, timeout=600
        ).stdout
        most, seconds = map(float, output.split())
        most_by_rows[rows] = most
        report.line(
            f"publishing {rows:,} rows of 100 bytes: at most {most:.0f} MiB of private memory,"
            f" {seconds / rows * 1e6:.2f} µs a row"
        )
    few, many = most_by_rows.values()
    assert many < few + GROWTH_MIB
