"""Several processes append while several queries read: no loss, duplicates or reordering."""

import multiprocessing
import time
from collections import defaultdict
from itertools import pairwise
from types import SimpleNamespace

import pytest
from support.producers import produce

PRODUCERS = 3
BATCHES = 2
"""The number of non-empty micro-batches that each query must complete during the appends."""

PATIENCE_SECONDS = 300


@pytest.fixture
def queries(spark, box):
    box.create()
    started = []
    for name in ("first", "second"):
        stream = (
            spark.readStream.format("pyrocket")
            .options(**box.options, startingOffsets="earliest", maxOffsetsPerTrigger=5_000)
            .schema("queueId INT, queueOffset BIGINT, body STRING")
            .load()
        )
        sink = stream.writeStream.format("memory").queryName(f"concurrent_{name}")
        started.append(sink.start())
        # One after the other: on a busy machine a start may exceed Spark's timeout of ten seconds.
        started[-1].processAllAvailable()
    yield started
    for query in started:
        query.stop()


@pytest.fixture
def producers(box, queries):
    """Start processes that append until `ended` is set; yield how many messages each has sent."""
    context = multiprocessing.get_context("spawn")
    sent, ended = context.Array("q", PRODUCERS), context.Event()
    arguments = [(box.path, producer, sent, ended) for producer in range(PRODUCERS)]
    processes = [context.Process(target=produce, args=each, daemon=True) for each in arguments]
    for process in processes:
        process.start()
    yield SimpleNamespace(processes=processes, sent=sent, ended=ended)
    for process in processes:
        process.kill()
        process.join()


def test_two_queries_see_each_message_of_appending_processes_once(spark, queries, producers):
    wait_until(lambda: min(producers.sent) > 0, queries)
    before = {query: batches_with_rows(query) for query in queries}
    wait_until(lambda: all(batches_with_rows(q) >= before[q] + BATCHES for q in queries), queries)
    assert all(process.is_alive() for process in producers.processes)
    producers.ended.set()
    for process in producers.processes:
        process.join(60)
        assert process.exitcode == 0
    for query in queries:
        query.processAllAvailable()
        rows = spark.table(query.name).collect()
        check_each_message_once([row.body for row in rows], producers.sent)
        check_queues(rows)


def wait_until(condition, queries):
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until, "no progress"
        assert all(query.isActive for query in queries), [query.exception() for query in queries]
        time.sleep(0.05)


def batches_with_rows(query):
    """Return the number of completed micro-batches with messages."""
    return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)


def check_each_message_once(bodies, sent):
    expected = [f"{producer}:{n}" for producer, count in enumerate(sent) for n in range(count)]
    assert sorted(bodies) == sorted(expected)


def check_queues(rows):
    queues = defaultdict(list)
    for row in rows:
        queues[row.queueId].append(row)
    for read in queues.values():
        # In the order in which the query returned them, not sorted.
        assert [row.queueOffset for row in read] == list(range(len(read)))
        numbers = defaultdict(list)
        for row in read:
            producer, number = row.body.split(":")
            numbers[producer].append(int(number))
        for sent in numbers.values():
            assert all(earlier < later for earlier, later in pairwise(sent))
