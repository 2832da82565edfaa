"""Shows and moves the progress of real queries outside of Spark: groups and checkpoints."""

import json

import pytest
from click.testing import CliRunner
from pyrocket import Store
from pyrocket.tools.cli import main
from pyspark.errors import StreamingQueryException


def committed(box, group="billing"):
    with Store.open(box.path, read_only=True) as store:
        return store.groups.committed(group, box.topic)


def command(*arguments):
    done = CliRunner().invoke(main, ["checkpoint", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_group_offsets_move_only_after_the_batch_is_committed(spark, box, tmp_path):
    """If a sink fails, the group does not move, and no message is lost or skipped."""
    box.create(queues=1)
    box.send("a", "b", queue=0)
    seen = []

    def run(fails):
        def sink(frame, batch):
            seen.extend(row.body for row in frame.collect())
            if fails:
                raise RuntimeError("the sink fails")

        asked = {**box.options, "startingOffsets": "earliest", "commitToGroup": "billing"}
        frame = spark.readStream.format("pyrocket").options(**asked).schema("body STRING").load()
        writer = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination(60)

    with pytest.raises(StreamingQueryException):
        run(fails=True)
    assert committed(box) == {}
    run(fails=False)
    assert committed(box) == {0: 2}
    assert seen == ["a", "b"] * 2


def test_a_moved_query_continues_from_there_and_its_file_sink_is_complete(box, stream):
    box.create(queues=1)
    box.send("a", "b")
    stream.drain()
    checkpoint = stream.folder / "checkpoint"
    command("reset", checkpoint, "--path", box.path, "--to", '{"t":{"0":1}}', "--yes")
    assert stream.drain() == [0, 1]
    box.send("c")
    assert stream.drain() == [1]
    assert stream.bodies() == ["a", "b", "b", "c"]
    assert stream.batches("commits") == [0, 1, 2, 3]


@pytest.mark.heavy
def test_the_state_of_a_query_survives_a_reset(spark, box, tmp_path):
    box.create(queues=1)
    box.send("a", "b")

    def run():
        frame = spark.readStream.format("pyrocket").options(**box.options)
        frame = frame.option("startingOffsets", "earliest").schema("body STRING").load()
        counted = frame.groupBy("body").count().writeStream.outputMode("update")
        rows = []
        query = (
            counted.foreachBatch(lambda part, _: rows.extend(map(tuple, part.collect())))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        return sorted(rows)

    assert run() == [("a", 1), ("b", 1)]
    arguments = ("--path", box.path, "--to", '{"t":{"0":1}}', "--yes")
    command("reset", tmp_path / "checkpoint", *arguments)
    assert run() == [("b", 2)]
