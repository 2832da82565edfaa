"""Streaming reads through Spark, from the first trigger to the last."""

import json
import time

import pyarrow as pa
import pytest


def texts(prefix, count):
    return [f"{prefix}{number:03}" for number in range(count)]


def test_available_now_reads_all_existing_messages_in_limited_batches(box, stream):
    box.create()
    box.send(*texts("a", 60), queue=0)
    box.send(*texts("b", 9), queue=1)
    box.send("c", queue=3)
    rows = stream.drain(maxOffsetsPerTrigger=20)
    assert rows == [20, 20, 20, 10]
    assert stream.bodies() == sorted([*texts("a", 60), *texts("b", 9), "c"])


def test_available_now_ends_while_messages_are_appended(box, stream):
    box.send(*texts("a", 40), queue=0)
    stream.options["maxOffsetsPerTrigger"] = 10
    query = stream.start(availableNow=True)
    while query.isActive:
        box.send("later", queue=0)
        time.sleep(0.05)
    query.awaitTermination(60)
    assert set(stream.bodies()) - {"later"} == set(texts("a", 40))
    left_over = box.rows() - len(stream.bodies())
    assert left_over > 0


def test_restarted_query_reads_every_message_exactly_once(box, stream):
    box.create(queues=3)
    sent = []
    for run in range(3):
        more = texts(f"run{run}-", 30)
        box.send(*more)
        sent += more
        stream.drain(maxOffsetsPerTrigger=17)
    assert stream.bodies() == sorted(sent)


def test_running_query_delivers_delayed_messages_without_a_writer(box, stream):
    box.create(queues=1)
    query = stream.start()
    try:
        box.send("a", "b", delayLevel=pa.array([1, None], pa.int32()), queue=0)
        until = time.monotonic() + 30
        while box.rows() < 2 and time.monotonic() < until:
            time.sleep(0.05)
        query.processAllAvailable()
    finally:
        query.stop()
    assert stream.output() == [("t", 0, 0, "b"), ("t", 0, 1, "a")]


def test_running_query_discovers_new_queues_and_topics(box, stream):
    box.create(queues=1)
    box.send("first", queue=0)
    stream.options |= {"subscribePattern": "t|lat.*"}
    del stream.options["topic"]
    query = stream.start()
    try:
        query.processAllAvailable()
        assert stream.bodies() == ["first"]
        box.send("second", queue=0)
        box.grow(queues=3)
        box.send("in a new queue", queue=2)
        query.processAllAvailable()
        later = box.other("later").create(queues=2)
        later.send("in a new topic", queue=1)
        query.processAllAvailable()
        box.send("third", queue=2)
        # Over a broker, the query may learn of a message after `processAllAvailable` has looked.
        deadline = time.monotonic() + 60
        while len(stream.bodies()) < 5 and time.monotonic() < deadline:
            query.processAllAvailable()
    finally:
        query.stop()
    assert stream.output() == [
        ("later", 1, 0, "in a new topic"),
        ("t", 0, 0, "first"),
        ("t", 0, 1, "second"),
        ("t", 2, 0, "in a new queue"),
        ("t", 2, 1, "third"),
    ]


def test_query_that_starts_at_latest_reads_only_new_messages(box, stream):
    box.send(*texts("old", 5))
    query = stream.start() if stream.options.pop("startingOffsets") else None
    try:
        query.processAllAvailable()
        box.send("new")
        query.processAllAvailable()
    finally:
        query.stop()
    assert stream.bodies() == ["new"]


def test_idle_query_runs_no_batches(box, stream):
    box.send("x")
    query = stream.start()
    try:
        query.processAllAvailable()
        before = stream.batches()
        time.sleep(1.5)
        assert stream.batches() == before
    finally:
        query.stop()


def test_progress_shows_the_lag(box, stream):
    box.create(queues=1)
    box.send(*texts("a", 30), queue=0)
    stream.drain(maxOffsetsPerTrigger=10)
    first = stream.progress[0]["sources"][0]
    assert first["endOffset"]["offsets"] == {"t": {"broker-a": {"0": 10}}}
    assert first["latestOffset"]["offsets"] == {"t": {"broker-a": {"0": 30}}}
    assert first["endOffset"].keys() - first["latestOffset"].keys() == {"from"}


def test_checkpoint_is_readable_and_contains_the_start_of_the_first_batch(box, stream):
    box.create(queues=2)
    box.send("x", queue=1)
    stream.drain()
    offset = json.loads(stream.offset(0))
    assert offset["offsets"] == {"t": {"broker-a": {"0": 0, "1": 1}}}
    assert offset["from"] == {"t": {"broker-a": {"0": 0, "1": 0}}}
    assert stream.offset(0) == json.dumps(offset, sort_keys=True)
    box.send("y", queue=1)
    stream.drain()
    assert "from" not in json.loads(stream.offset(1))


def test_trigger_once_reads_everything_despite_the_limit(box, stream):
    box.send(*texts("a", 30), queue=0)
    stream.options["maxOffsetsPerTrigger"] = 7
    query = stream.start(once=True)
    query.awaitTermination(60)
    assert len(stream.bodies()) == 30


@pytest.mark.parametrize("kafka", [False, True])
def test_streams_have_the_default_columns(box, stream, kafka):
    box.send("x")
    stream.schema = None
    stream.drain(schemaMode="kafka" if kafka else "rocketmq")
    (row,) = stream.spark.read.parquet(str(stream.folder / "out")).collect()
    assert bytes(row.value if kafka else row.body) == b"x"
