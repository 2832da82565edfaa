"""Streaming reads through Spark, from the first trigger to the last."""

import json
import time

import pyarrow as pa


def texts(prefix, count):
    return [f"{prefix}{number:03}" for number in range(count)]


def test_available_now_reads_existing_messages_in_limited_batches_and_shows_its_progress(
    box, stream
):
    box.create()
    box.send(*texts("a", 60), queue=0)
    box.send(*texts("b", 9), queue=1)
    box.send("c", queue=3)
    assert stream.drain(maxOffsetsPerTrigger=25) == [25, 25, 20]
    assert stream.bodies() == sorted([*texts("a", 60), *texts("b", 9), "c"])
    shown = stream.progress[0]["sources"][0]
    assert shown["latestOffset"]["offsets"] == {
        "t": {"broker-a": {"0": 60, "1": 9, "2": 0, "3": 1}}
    }
    assert shown["endOffset"].keys() - shown["latestOffset"].keys() == {"from"}
    offset = json.loads(stream.offset(0))
    assert offset == shown["endOffset"]
    assert sum(offset["offsets"]["t"]["broker-a"].values()) == 25
    assert offset["from"] == {"t": {"broker-a": dict.fromkeys("0123", 0)}}
    assert stream.offset(0) == json.dumps(offset, sort_keys=True), "it can be read by people"
    assert "from" not in json.loads(stream.offset(1))


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


def test_a_query_that_starts_at_latest_reads_only_new_messages_and_runs_no_batches_when_idle(
    box, stream
):
    box.send(*texts("old", 5))
    stream.schema = None
    stream.options |= {"startingOffsets": "latest", "schemaMode": "kafka"}
    query = stream.start()
    try:
        query.processAllAvailable()
        box.send("new")
        query.processAllAvailable()
        before = stream.batches()
        time.sleep(0.5)
        assert stream.batches() == before
    finally:
        query.stop()
    (row,) = stream.spark.read.parquet(str(stream.folder / "out")).collect()
    assert bytes(row.value) == b"new"
