"""After a crash a micro-batch is replayed with its planned messages."""

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
