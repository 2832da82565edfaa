"""Compares `endpoint` with `path`; broker and client share the same cores."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median

import psutil
import pytest
from bench.ceiling import to_nowhere
from bench.data import batch, fill
from bench.pairs import ROUNDS, Pair, cpu_seconds, measure, touch
from bench.test_sink import QUEUES, store_at
from pyrocket import Client, Connection, RemoteSink, SinkBatch, Store
from support import broker_process
from support.slices import span_of
from support.transports import disconnect

TASKS = 2
TESTS = Path(__file__).resolve().parent.parent


def cpu_of(pid):
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


@contextmanager
def bare_broker(path):
    """Run `bench.bare_broker`, and yield its address."""
    paths = os.pathsep.join([os.environ["PYTHONPATH"], str(TESTS)])
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.bare_broker", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@dataclass
class Timed:
    """Measures runs of a function: wall time, and CPU time of all processes and of the broker."""

    function: object
    broker: int
    runs: list = field(default_factory=list)

    def __call__(self):
        before = time.perf_counter(), cpu_seconds(), cpu_of(self.broker)
        self.function()
        after = time.perf_counter(), cpu_seconds(), cpu_of(self.broker)
        self.runs.append([end - start for start, end in zip(before, after, strict=True)])

    def costs(self, gigabytes):
        """Return the CPU seconds per GB of the broker and of all other processes."""
        broker = median(run[2] for run in self.runs) / gigabytes
        return broker, median(run[1] for run in self.runs) / gigabytes - broker


def compare(ours, reference, rounds):
    """Return the comparison in wall time, and in CPU time."""
    ours.runs.clear()
    reference.runs.clear()
    measure(ours, reference, rounds, warm_up=int(rounds > 1))

    def pair(column):
        mine, other = ([run[column] for run in each.runs[-rounds:]] for each in (ours, reference))
        ratios = [b / max(a, 1e-9) for a, b in zip(mine, other, strict=True)]
        return Pair(median(mine), median(other), median(ratios))

    return pair(0), pair(1)


LARGE = pytest.mark.bench
ROWS = {1024: 300_000, 100: 1_000_000}
READS = [
    pytest.param("small", 1024, None, marks=pytest.mark.heavy),
    *(
        pytest.param("large", size, schema, marks=LARGE)
        for size in (1024, 100)
        for schema in ("body BINARY, queueOffset BIGINT", None)
    ),
]


@pytest.mark.parametrize(("large", "body_bytes", "schema"), READS, indirect=["large"])
def test_fetch_into_spark_beside_path(spark, fast_disk, large, report, body_bytes, schema):
    rows, rounds = (ROWS[body_bytes] if large else 2_000), ROUNDS if large else 1
    with Store.open(fast_disk / "store", create=True) as store:
        fill(store, "T", rows, body_bytes, queues=TASKS)
        known = store.offsets("T")
        spans = [span_of(store, "T", queue, 0, at.maximum) for queue, at in known.items()]
        gigabytes = sum(span.bytes for span in spans) / 1e9
    shutil.copytree(fast_disk / "store", fast_disk / "bare")

    def reading(**target):
        reader = spark.read.format("pyrocket").options(topic="T", **target)
        return (reader.schema(schema) if schema else reader).load()

    columns = "body, queueOffset" if schema else "all default columns"
    name = f"Spark batch read over endpoint, {body_bytes} B, {columns}"
    with (
        broker_process.running(fast_disk / "store") as (process, found),
        bare_broker(fast_disk / "bare") as bare,
    ):
        frames = [
            reading(endpoint=found.listen[0]),
            reading(path=str(fast_disk / "store")),
            reading(endpoint=bare),
        ]
        ours, path, prebuilt = (
            Timed(lambda frame=frame: to_nowhere(frame), process.pid) for frame in frames
        )

        def beside(reference, what):
            wall, cpu = compare(ours, reference, rounds)
            report.line(f"{name}, beside {what}: {cpu.ratio:.2f} by CPU time")
            return wall

        def rates(what, reference, aim):
            report.rate_share(
                f"{name}, beside {what}", lambda: beside(reference, what), rows / 1e6, "M rows", aim
            )

        rates("path", path, 0.5 if body_bytes == 1024 and schema else 0.6)
        broker, client = ours.costs(gigabytes)
        report.line(f"{name}: {broker:.2f} s of CPU per GB at the broker, {client:.2f} in Spark")
        rates("prebuilt blocks", prebuilt, 0.85)
    disconnect()


@contextmanager
def two_stores(folder, some, batches):
    """Yield a store, a client of the broker of another store, and the broker's process id.

    The pages of both logs are in memory, so that the disks are not measured.
    """
    for name in ("local", "served"):
        with store_at(folder / name) as store:
            store.append_batch(some.slice(0, 1), topic="T")
        (log,) = (folder / name / "commitlog").iterdir()
        touch(log, min(1 << 30, batches * some.num_rows * 1300))
    with (
        Store.open(folder / "local") as local,
        broker_process.running(folder / "served") as (process, found),
    ):
        client = Client(Connection(found.listen[0]))
        yield local, client, process.pid
        client.close()


@pytest.mark.parametrize(("delivery", "aim"), [("at-least-once", 0.5), ("exactly-once", 0.6)])
def test_spark_write_beside_path(spark, fast_disk, large, report, delivery, aim):
    """Rows of 1 KiB, which Spark computes, from two tasks."""
    rows, rounds = (100_000, ROUNDS) if large else (2_000, 1)
    body = "cast(rpad(cast(id as string), 1024, 'x') as binary) AS body"
    frame = spark.range(0, rows, 1, TASKS).selectExpr(body)
    first = batch(1, 1024, rich=False)
    with two_stores(fast_disk, first, rows * (2 * rounds + 2)) as (local, client, pid):

        def writing(**target):
            options = {**target, "topic": "T", "delivery": delivery}
            writer = frame.write.format("pyrocket").mode("append").options(**options)
            return Timed(writer.save, pid)

        ours = writing(endpoint=client.connection.address)
        path = writing(path=str(local.path))
        name = f"Spark batch write over endpoint, 1 KiB, {delivery}"
        wall = partial(_wall, report, name, ours, path, rounds)
        report.rate_share(f"{name}, beside path", wall, rows / 1e6, "M rows", aim)
        _report_costs(report, name, ours, rows)
    disconnect()


@pytest.mark.parametrize("rich", [False, True], ids=["bodies", "rich"])
def test_bulk_append_beside_path(fast_disk, large, report, rich):
    """Append batches of 5 MB, one after the other, in one thread: no call overlaps another."""
    rows, times, rounds = (5000, 8, ROUNDS) if large else (50, 2, 1)
    some = batch(rows, 1024, rich=rich)
    with two_stores(fast_disk, some, times * (rounds + 2)) as (local, client, pid):

        def appending(append):
            def run():
                for number in range(times):
                    append(some, topic="T", first_queue=number)

            return Timed(run, pid)

        ours, path = appending(RemoteSink(client).append), appending(local.append_batch)
        _report_writes(report, "bulk append", rich, ours, path, rounds, rows * times)


@pytest.mark.parametrize("rich", [False, True], ids=["bodies", "rich"])
def test_exactly_once_write_beside_path(fast_disk, large, report, rich):
    """Batches of 40 MB, each staged by one task and published."""
    rows, times, rounds = (5000, 8, ROUNDS) if large else (50, 2, 1)
    some = batch(rows, 1024, rich=rich)
    with two_stores(fast_disk, some, times * (rounds + 2)) as (local, client, pid):

        def writing(to):
            def run():
                one = SinkBatch(identity="bench", target="T", batch=len(timed.runs))
                with to.stage(one, partition=0, attempt=0) as stager:
                    for number in range(times):
                        stager.append(some, topic="T", first_queue=number)
                    staged = stager.finish()
                to.publish(one, [staged])
                assert staged.rows == rows * times

            timed = Timed(run, pid)
            return timed

        ours, path = writing(RemoteSink(client)), writing(local.sink)
        _report_writes(report, "exactly-once", rich, ours, path, rounds, rows * times)


def _report_writes(report, what, rich, ours, path, rounds, rows):
    name = f"{what} over endpoint, 1 KiB, {'tags, keys, properties' if rich else 'bodies'}"
    pair = _wall(report, name, ours, path, rounds)
    report.rate(f"{name}, beside path", pair, rows / 1e6, "M rows", "")
    _report_costs(report, name, ours, rows)


def _wall(report, name, ours, path, rounds):
    pair, cpu = compare(ours, path, rounds)
    report.line(f"{name}: {cpu.ratio:.2f} of the CPU time of path")
    return pair


def _report_costs(report, name, ours, rows):
    broker, client = ours.costs(rows * 1150 / 1e9)
    report.line(f"{name}: {broker:.2f} s of CPU per GB at the broker, {client:.2f} at the client")


def test_idle_query_and_its_broker(spark, tmp_path, large, report):
    """The query and the broker together use at most 1 % of a core; new messages are read soon."""
    seconds, times = (20, 20) if large else (0.2, 2)
    with broker_process.running(tmp_path / "store") as (process, found):
        sink = RemoteSink(Client(Connection(found.listen[0])))
        sink.prepare("T", queues=QUEUES)
        before = {each.pid for each in psutil.Process().children(recursive=True)}
        reader = spark.readStream.format("pyrocket").option("topic", "T")
        frame = reader.option("endpoint", found.listen[0]).load()
        query = frame.writeStream.format("noop")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.processAllAvailable()
        runner = next(
            each.pid
            for each in psutil.Process().children(recursive=True)
            if each.pid not in before and "source_runner" in " ".join(each.cmdline())
        )
        pids = (process.pid, runner)
        used = [cpu_of(pid) for pid in pids]
        time.sleep(seconds)
        shares = [100 * (cpu_of(pid) - was) / seconds for pid, was in zip(pids, used, strict=True)]
        report.line(
            f"idle query over endpoint, default trigger, {seconds} s: broker {shares[0]:.1f} %,"
            f" source runner {shares[1]:.1f} % of a core (aim: ≤ 1 % together)"
        )
        report.line(f"append → read by the idle query: {_seen(sink, query, times)}")
        query.stop()
    disconnect()


def _seen(sink, query, times):
    """Return a line with the delays between an append's reply and the query's next offset.

    A call for an offset may begin before the append, because it waits for changes.
    """
    delays = []
    while len(delays) < times:
        time.sleep(0.3)
        sink.append(batch(1, 10, rich=False), topic="T")
        at = time.time()
        found = []
        while len(found) <= len(delays):
            time.sleep(0.01)
            found = [one for one in query.recentProgress if one.numInputRows]
        planned = _epoch_s(found[-1].timestamp) + found[-1].durationMs["latestOffset"] / 1000
        delays.append(1000 * (planned - at))
    return (
        f"median {median(delays):.0f} ms, at most {max(delays):.0f} ms after its reply"
        " (aim: ≤ 50 ms)"
    )


def _epoch_s(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
