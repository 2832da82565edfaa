"""Exactly-once through Spark: repeated, failed and late attempts do not duplicate rows."""

from pathlib import Path

import pytest
from pyrocket.errors import SinkError
from pyspark.sql import functions as f
from support.direct import write


def numbers(spark, rows, tasks=2):
    return spark.range(0, rows, 1, tasks).select(f.col("id").cast("string").alias("body"))


def save(frame, box, **options):
    frame.write.format("pyrocket").mode("append").options(**box.options, **options).save()


def test_nothing_of_a_write_is_visible_if_one_task_fails_and_then_everything_at_once(spark, box):
    """A reader must not see only some of the rows of some of the topics."""
    good = numbers(spark, 1_000, tasks=4)
    fails = f.when(f.col("body") == "999", f.raise_error("no")).otherwise(f.col("body"))
    with pytest.raises(Exception, match="no"):
        save(good.select(fails.alias("body")), box)
    assert box.rows() == 0
    topic = f.when(f.col("body").cast("int") % 2 == 0, f.lit("even")).otherwise(f.lit("odd"))
    frame = good.withColumn("topic", topic)
    frame.write.format("pyrocket").mode("append").options(**box.target).save()
    even, odd = (box.other(name) for name in ("even", "odd"))
    assert [even.rows(), odd.rows()] == [500, 500]
    times = {time for one in (even, odd) for (time,) in one.read("storeTimestamp")}
    assert len(times) == 1


def send(box, **options):
    """Write ten rows from two tasks."""
    some = [(str(number),) for number in range(5)]
    write(box.options, "body STRING", some, some, **options)


def test_a_write_with_the_same_number_is_dropped_and_a_smaller_one_rejected(box):
    for version in (3, 3, 4, 4):
        send(box, txnAppId="app", txnVersion=version)
    assert box.rows() == 20
    with pytest.raises(SinkError, match="SINK_BATCH_BEHIND"):
        send(box, txnAppId="app", txnVersion=2)
    assert box.rows() == 20


def test_writes_with_other_ids_or_topics_or_without_an_id_are_not_repetitions(box):
    other = box.other("other")
    for target, app in ((box, "a"), (box, "b"), (other, "a")):
        send(target, txnAppId=app, txnVersion=0)
    assert (box.rows(), other.rows()) == (20, 10)
    for _ in range(2):
        send(box)
    assert box.rows() == 40


def test_a_write_leaves_no_staged_files(box):
    send(box, txnAppId="a", txnVersion=0)
    send(box)
    assert staged_files(box) == []


def staged_files(box):
    """Return the files of batches, `<query>/<batch>-…`; other files are kept for reuse."""
    return [path for path in Path(box.path, "pyrocket/staging").glob("*/*-*") if path.is_file()]


@pytest.fixture
def piped(spark, box, tmp_path):
    """Copies the box to another topic of its store until everything is copied."""
    return Piped(spark, box, tmp_path / "checkpoint")


class Piped:
    def __init__(self, spark, box, checkpoint):
        self._spark, self._box, self.checkpoint = spark, box, checkpoint
        self.target = box.other("copy")

    def stream(self, schema="queueId INT, body STRING"):
        reader = self._spark.readStream.format("pyrocket").options(**self._box.options)
        return reader.option("startingOffsets", "earliest").schema(schema).load()

    def run(self, frame=None, **options):
        """Run the query until it ends."""
        finish(self.start(frame, **options))

    def start(self, frame=None, *, foreach=None, **options):
        """Start the query; `foreach`, if given, processes each micro-batch."""
        writer = (frame or self.stream()).writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if foreach is None:
            writer = writer.format("pyrocket").options(**self.target.options, **options)
        else:
            writer = writer.foreachBatch(foreach)
        return writer.start()

    def forget(self, batch):
        """Remove the commit of a micro-batch, to simulate that the driver died before it."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)


def finish(query):
    try:
        query.awaitTermination(120)
    finally:
        query.stop()


def test_a_replayed_micro_batch_is_dropped(box, piped):
    box.send(*map(str, range(50)))
    piped.run()
    piped.forget(0)
    box.send("b")
    piped.run()
    assert piped.target.bodies() == box.bodies()


def test_a_micro_batch_that_was_not_published_is_published_by_its_replay(spark, box, piped):
    box.send(*map(str, range(50)))
    fails = f.when(f.col("body") == "7", f.raise_error("no")).otherwise(f.col("body"))
    with pytest.raises(Exception, match="no"):
        piped.run(piped.stream().select(fails.alias("body")))
    assert piped.target.rows() == 0
    piped.run()
    assert piped.target.bodies() == box.bodies()


def test_writes_in_foreach_batch_without_an_id_are_not_repetitions(box, piped):
    """Spark passes the same query and micro-batch to the tasks of both writes."""
    box.send("x", "y")

    def twice(frame, batch):
        for _ in range(2):
            save(frame.select("body"), piped.target)

    piped.run(foreach=twice)
    assert piped.target.bodies() == [b"x", b"x", b"y", b"y"]
