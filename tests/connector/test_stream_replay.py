"""After a crash a micro-batch is replayed with its planned messages."""

import json
import shutil

import pytest


def run_again(stream, batch):
    """Remove the commit of a batch, and the sink's output of it."""
    stream.forget_commit(batch)
    log = stream.folder / "out" / "_spark_metadata"
    for name in (str(batch), f".{batch}.crc"):
        (log / name).unlink(missing_ok=True)


def test_the_first_batch_is_replayed_as_planned_although_the_start_has_moved(box, stream):
    """Spark does not save the initial offset; resolving `latest` again would lose the batch."""
    box.send("a", "b", queue=0)
    stream.drain()
    run_again(stream, 0)
    box.send("c", queue=0)
    stream.drain(startingOffsets="latest")
    assert stream.bodies() == ["a", "b", "c"]


def test_a_replayed_empty_first_batch_does_not_lose_later_messages(box, stream):
    box.send("old", queue=0)
    stream.drain(startingOffsets="latest")
    run_again(stream, 0)
    box.send("new", queue=0)
    stream.drain()
    assert stream.bodies() == ["new"]


def test_a_later_batch_is_replayed_with_the_same_range(box, stream):
    box.send("a", queue=0)
    stream.drain()
    box.send("b", "c", queue=0)
    stream.drain()
    run_again(stream, 1)
    box.send("d", queue=0)
    assert stream.drain() == [2, 1]
    assert stream.bodies() == ["a", "b", "c", "d"]


def test_a_batch_in_which_a_queue_was_found_is_replayed_with_that_queues_start(box, stream):
    box.create(queues=1)
    box.send("a", queue=0)
    stream.drain()
    box.grow(queues=2)
    box.send("b", queue=1)
    stream.drain()
    assert json.loads(stream.offset(1))["from"] == {"t": {"broker-a": {"1": 0}}}
    run_again(stream, 1)
    assert stream.drain() == [1]
    assert stream.bodies() == ["a", "b"]


def test_a_sink_that_failed_gets_the_same_rows_in_the_replayed_batch(spark, box, tmp_path):
    box.send(*map(str, range(50)))
    seen = []

    def run(fail):
        def sink(frame, batch):
            seen.append((batch, sorted(tuple(row) for row in frame.collect())))
            if fail:
                raise RuntimeError("the sink dies after it has seen the rows")

        query = (
            spark.readStream.format("pyrocket")
            .options(**box.options, startingOffsets="earliest", maxOffsetsPerTrigger=20)
            .schema("queueId INT, queueOffset BIGINT")
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        return query.awaitTermination(60)

    with pytest.raises(Exception, match="the sink dies"):
        run(fail=True)
    box.send(*map(str, range(50)))
    assert run(fail=False)
    (failed, *replayed) = seen
    assert replayed[0] == failed
    rows = [row for _, batch in replayed for row in batch]
    assert len(rows) == len(set(rows)) == 100


def test_a_query_continues_after_its_store_moved_to_another_path(box, stream, tmp_path):
    box.send("a", queue=0)
    stream.drain()
    box.path = shutil.move(box.path, tmp_path / "moved")
    box.send("b", queue=0)
    stream.drain(path=str(box.path))
    assert stream.bodies() == ["a", "b"]


def test_another_store_at_the_same_path_is_detected(box, stream):
    box.send("a", queue=0)
    stream.drain()
    shutil.rmtree(box.path)
    box.send("b", "c", queue=0)
    with pytest.raises(Exception, match="STORE_CHANGED"):
        stream.drain()
    assert stream.bodies() == ["a"]


def test_a_topic_created_again_is_detected(box, stream):
    box.send("a", queue=0)
    stream.drain()
    with box.store() as store:
        store.topics.delete("t")
    box.send("b", queue=0)
    with pytest.raises(Exception, match="TOPIC_RECREATED"):
        stream.drain()
    assert stream.bodies() == ["a"]


def test_deleting_a_topic_stops_the_query_with_an_error_that_names_it(box, stream):
    box.send("a", queue=0)
    query = stream.start()
    try:
        query.processAllAvailable()
        with box.store() as store:
            store.topics.delete("t")
        with pytest.raises(Exception, match="TOPIC_DELETED"):
            query.awaitTermination(60)
    finally:
        query.stop()
