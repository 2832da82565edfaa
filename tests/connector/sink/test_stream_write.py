"""Streaming writes through Spark."""

import pytest


@pytest.fixture
def pipe(spark, box, tmp_path):
    """Copies the box to another topic of its store until everything is copied."""
    target = box.other("copy")

    def run():
        query = (
            spark.readStream.format("pyrocket")
            .options(**box.options, startingOffsets="earliest")
            .schema("body STRING, key STRING, queueId INT")
            .load()
            .select("body", "key")
            .writeStream.format("pyrocket")
            .options(**target.options, checkpointLocation=str(tmp_path / "checkpoint"))
            .outputMode("append")
            .queryName("pipe")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(120)
        finally:
            query.stop()
        return target

    return run


def test_a_stream_copies_a_topic_to_another(box, pipe):
    box.send(*map(str, range(50)))
    target = pipe()
    assert target.bodies() == box.bodies()
    box.send("more")
    pipe()
    assert target.bodies() == box.bodies()


@pytest.mark.heavy
def test_complete_mode_is_rejected_because_a_log_is_not_truncated(spark, box, tmp_path):
    box.send("x")
    query = (
        spark.readStream.format("pyrocket")
        .options(**box.options, startingOffsets="earliest")
        .schema("topic STRING")
        .load()
        .groupBy("topic")
        .count()
        .selectExpr("CAST(count AS STRING) AS body")
        .writeStream.format("pyrocket")
        .options(**box.target, topic="counts", checkpointLocation=str(tmp_path / "checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match=r"OPTION_OVERWRITE.*cannot be overwritten"):
        query.awaitTermination(60)
    assert box.other("counts").rows() == 0
