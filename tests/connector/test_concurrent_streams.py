"""Several processes append while several queries read: nothing is missed, doubled or reordered."""

import multiprocessing
from collections import defaultdict
from itertools import pairwise

import pytest
from producers import BATCHES, PRODUCERS, ROWS, produce


@pytest.fixture
def queries(spark, box):
    box.create()
    started = []
    for name in ("first", "second"):
        stream = (
            spark.readStream.format("pyrocket")
            .options(**box.options, startingOffsets="earliest", maxOffsetsPerTrigger=700)
            .schema("queueId INT, queueOffset BIGINT, body STRING")
            .load()
        )
        sink = stream.writeStream.format("memory").queryName(f"concurrent_{name}")
        started.append(sink.start())
    yield started
    for query in started:
        query.stop()


def test_two_queries_see_each_message_of_four_appending_processes_once(spark, box, queries):
    context = multiprocessing.get_context("spawn")
    arguments = [(box.path, producer) for producer in range(PRODUCERS)]
    processes = [context.Process(target=produce, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    for query in queries:
        query.processAllAvailable()
        rows = spark.table(query.name).collect()
        check_each_message_once([row.body for row in rows])
        check_queues(rows)


def check_each_message_once(bodies):
    expected = [f"{p}:{n}" for p in range(PRODUCERS) for n in range(BATCHES * ROWS)]
    assert sorted(bodies) == sorted(expected)


def check_queues(rows):
    queues = defaultdict(list)
    for row in rows:
        queues[row.queueId].append(row)
    for read in queues.values():
        # In the order in which the query gave them, not sorted.
        assert [row.queueOffset for row in read] == list(range(len(read)))
        numbers = defaultdict(list)
        for row in read:
            producer, number = row.body.split(":")
            numbers[producer].append(int(number))
        for sent in numbers.values():
            assert all(earlier < later for earlier, later in pairwise(sent))
