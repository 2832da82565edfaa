"""The cost of planning a trigger over many queues, and the gain of splitting a skewed topic."""

import time
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from bench.pairs import MIB, measure
from bench.trivial import Trivial
from pyrocket import Store
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget
from support.slices import span_of

QUEUES = 64
PLANNING = ("latestOffset", "queryPlanning", "getBatch")
"""Keys of `durationMs` for the time that a source takes before the tasks of a micro-batch."""


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("T", read_queues=QUEUES, write_queues=QUEUES)
        yield store


def send(store, queues, body=b"x" * 1_000):
    """Append one message to each of the queues."""
    columns = {"body": pa.array([body] * len(queues)), "queueId": pa.array(queues, pa.int32())}
    store.append_batch(pa.record_batch(columns), topic="T")


def ms(function, *arguments):
    start = time.perf_counter()
    done = function(*arguments)
    return done, 1_000 * (time.perf_counter() - start)


def test_a_plan_over_64_queues(store, large, report):
    """Calls the source as Spark's source runner does, with one new message in each queue."""
    options = {"path": str(store.path), "topic": "T", "startingOffsets": "earliest"}
    schema = default_columns(kafka=False, headers=False, text=False)
    reader = DefaultSource(options).streamReader(schema=schema)
    limit, at = reader.getDefaultReadLimit(), reader.initialOffset()
    times = {"plan": [], "idle": []}
    for _ in range(50 if large else 3):
        send(store, range(QUEUES))
        end, latest = ms(reader.latestOffset, at, limit)
        _, reported = ms(reader.reportLatestOffset)
        tasks, cut = ms(reader.partitions, at, end)
        assert [len(task.work.ranges) for task in tasks] == [QUEUES]
        times["plan"].append(latest + reported + cut)
        at = end
        assert reader.latestOffset(at, limit) is at
        idle = [ms(reader.latestOffset, at, limit)[1] for _ in range(20)]
        times["idle"].append(median(idle))
    forget(str(store.path))
    report.line(
        f"planner of a micro-batch of {QUEUES} queues, median of {len(times['plan'])}:"
        f" {median(times['plan']):.1f} ms (hoped for: <= 20 ms);"
        f" without new messages {1_000 * median(times['idle']):.0f} us"
    )


def start(spark, source, options, folder):
    reader = spark.readStream.format(source).options(**options)
    query = reader.load().writeStream.format("noop")
    return query.option("checkpointLocation", str(folder)).start()


def durations(query):
    """Return the durations (ms) of the newest micro-batch that had rows."""
    query.processAllAvailable()
    return next(p.durationMs for p in reversed(query.recentProgress) if p.numInputRows)


def test_a_trigger_over_64_queues_beside_the_trivial_source(spark, store, tmp_path, large, report):
    spark.dataSource.register(Trivial)
    clock, batch = tmp_path / "clock", tmp_path / "batches"
    clock.write_text("0")
    rows = pa.record_batch({"at": pa.array([1] * QUEUES, pa.int32())})
    with pa.OSFile(f"{batch}.0", "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_batch(rows)
    ours = {"path": store.path, "topic": "T", "startingOffsets": "earliest"}
    trivial = {"clock": clock, "batches": batch, "tasks": 1}
    queries = [
        start(spark, "pyrocket", ours, tmp_path / "ours"),
        start(spark, "trivial", trivial, tmp_path / "trivial"),
    ]
    times = []
    for number in range(1, (45 if large else 2) + 1):
        send(store, range(QUEUES))
        mine = durations(queries[0])
        draft = clock.with_suffix(".new")
        draft.write_text(str(number))
        draft.replace(clock)
        times.append((mine, durations(queries[1])))
    for query in queries:
        query.stop()
    counted = times[5:] or times
    planning, whole = (
        [
            median(sum(pair[side].get(name, 0) for name in names) for pair in counted)
            for side in (0, 1)
        ]
        for names in (PLANNING, ("triggerExecution",))
    )
    report.line(
        f"trigger over {QUEUES} queues of one row each, median of {len(counted)} pairs: planning"
        f" {planning[0]:.0f} ms, trivial source {planning[1]:.0f} ms (hoped for: within 20 ms);"
        f" in total {whole[0]:.0f} ms, trivial source {whole[1]:.0f} ms"
    )


def fill_skewed(path, size):
    """Write about `size` bytes of JSON, nine tenths of them to one of ten queues."""
    rows = 10 * MIB // 1_100
    digits = np.random.default_rng(7).integers(0, 10, rows * 900, np.uint8) + ord("0")
    texts = pa.FixedSizeBinaryArray.from_buffers(pa.binary(900), rows, [None, pa.py_buffer(digits)])
    numbers = pa.array(np.arange(rows)).cast(pa.string()).cast(pa.binary())
    begin, middle, end = b'{"id": ', b', "carrier": "UA", "delay": 12.5, "text": "', b'"}'
    texts = texts.cast(pa.binary())
    bodies = pc.binary_join_element_wise(begin, numbers, middle, texts, end, b"")
    queue_ids = np.where(np.arange(rows) % 10, 0, 1 + np.arange(rows) // 10 % 9).astype(np.int32)
    batch = pa.record_batch({"body": bodies, "queueId": pa.array(queue_ids)})
    with Store.open(path, create=True) as store:
        store.topics.create("T", read_queues=10, write_queues=10)
        for _ in range(max(1, size // (10 * MIB))):
            store.append_batch(batch, topic="T")
        known = store.offsets("T")
        return sum(span_of(store, "T", q, 0, at.maximum).bytes for q, at in known.items())


PARSED = "from_json(CAST(body AS STRING), 'id BIGINT, carrier STRING, delay DOUBLE') AS flight"
JOBS = {
    "read only": (["*"], "noop"),
    "parsed by Spark's from_json": ([PARSED, "queueOffset"], "noop"),
    "exported to Parquet": (["CAST(body AS STRING) AS body", "queueOffset"], "parquet"),
}
"""A task that only reads keeps both cores busy: the worker decodes on one, and the JVM creates rows
on the other.
"""


@pytest.mark.parametrize("job", JOBS)
def test_a_skewed_topic_with_min_partitions(spark, fast_disk, large, report, job):
    """There are two cores; without the option, one task reads nine tenths of the messages."""
    path, (expressions, output) = str(fast_disk / "store"), JOBS[job]
    stored = fill_skewed(path, 1_200 * MIB if large else 10 * MIB)

    def read(**options):
        frame = spark.read.format("pyrocket").options(path=path, topic="T", **options)
        frame = frame.schema("body BINARY, queueOffset BIGINT").load().selectExpr(*expressions)
        frame.write.format(output).mode("overwrite").save(str(fast_disk / "output"))

    pair = measure(lambda: read(minPartitions="4"), read, rounds=7 if large else 1)
    report.line(
        f"skewed topic of {stored / MIB:,.0f} MiB, nine tenths in one queue, {job}: minPartitions=4"
        f" {stored / MIB / pair.ours:,.0f} MiB/s, without {stored / MIB / pair.reference:,.0f};"
        f" {pair.ratio:.2f} times as fast (hoped for: >= 1.6)"
    )
