"""A checkpoint or a sink's store is restored from a backup: no row is lost without an error."""

import shutil
from pathlib import Path

import pytest
from pyrocket import Store


class Piped:
    """Copies one topic to a topic of another store until everything is copied."""

    def __init__(self, spark, source, sink, checkpoint):
        self._spark, self.source, self.sink, self.checkpoint = spark, source, sink, checkpoint
        self.sent = []

    def run(self, *bodies, columns="body", where="true", named=True, **options):
        """Send the bodies, and run the query until it has processed everything."""
        if bodies:
            self.source.send(*bodies)
            self.sent += [body.encode() for body in bodies]
        query = (
            self._spark.readStream.format("pyrocket")
            .options(**self.source.options, startingOffsets="earliest")
            .schema("body STRING")
            .load()
            .where(where)
            .selectExpr(*columns.split(", "))
            .writeStream.format("pyrocket")
            .options(**self.sink.options, **options)
            .trigger(availableNow=True)
        )
        if named:
            query = query.option("checkpointLocation", str(self.checkpoint))
        running = query.start()
        try:
            running.awaitTermination(120)
        finally:
            running.stop()


@pytest.fixture
def piped(spark, box, tmp_path):
    sink = type(box)(str(tmp_path / "sink"), "copy")
    return Piped(spark, box, sink, tmp_path / "checkpoint")


def put_back(path, backup):
    shutil.rmtree(path)
    shutil.copytree(backup, path)


def test_a_restored_checkpoint_loses_no_rows_silently(piped, tmp_path):
    """Spark plans the last micro-batch again, including messages that have arrived since."""
    piped.run("a", "b")
    shutil.copytree(piped.checkpoint, tmp_path / "backup")
    piped.run(*map(str, range(40)))
    put_back(piped.checkpoint, tmp_path / "backup")
    with pytest.raises(Exception, match=r"SINK_BATCH_DIFFERS.*batch 1.*40 rows.*80 rows"):
        piped.run(*map(str, range(40, 80)))
    piped.run(onReplayDifference="publish")
    assert set(piped.sink.bodies()) == set(piped.sent)


@pytest.mark.heavy
@pytest.mark.parametrize("named", [True, False], ids=["checkpoint in an option", "in the session"])
def test_a_query_whose_store_is_missing_creates_no_new_one(spark, piped, tmp_path, named):
    """A disk may not be mounted: rows written meanwhile would be missing after it is mounted."""
    if not named:
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        name = {} if named else {"queryName": "gone"}
        piped.run("a", named=named, **name)
        elsewhere = shutil.move(piped.sink.path, tmp_path / "elsewhere")
        with pytest.raises(Exception, match=r"SINK_STORE_CHANGED.*there is no store"):
            piped.run("b", named=named, **name)
        assert not Path(piped.sink.path).exists()
        with Store.open(piped.sink.path, create=True) as store:
            other = store.uuid
        with pytest.raises(Exception, match=f"SINK_STORE_CHANGED.*{other}"):
            piped.run(named=named, **name)
        shutil.rmtree(piped.sink.path)
        shutil.move(elsewhere, piped.sink.path)
        piped.run(named=named, **name)
        assert piped.sink.bodies() == [b"a", b"b"]
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
