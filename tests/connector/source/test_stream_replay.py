"""After a crash a micro-batch is replayed with its planned messages."""

import pytest


def test_a_sink_that_failed_gets_the_same_rows_in_the_replayed_batch(spark, box, tmp_path):
    """Spark does not save the initial offset; resolving `latest` again would lose the batch."""
    box.send(*map(str, range(50)))
    seen = []

    def run(start, *, fail):
        def sink(frame, batch):
            seen.append((batch, sorted(tuple(row) for row in frame.collect())))
            if fail:
                raise RuntimeError("the sink dies after it has seen the rows")

        query = (
            spark.readStream.format("pyrocket")
            .options(**box.options, startingOffsets=start, maxOffsetsPerTrigger=20)
            .schema("queueId INT, queueOffset BIGINT")
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        return query.awaitTermination(60)

    with pytest.raises(Exception, match="the sink dies"):
        run("earliest", fail=True)
    box.send(*map(str, range(50)))
    assert run("latest", fail=False)
    (failed, *replayed) = seen
    assert replayed[0] == failed
    rows = [row for _, batch in replayed for row in batch]
    assert len(rows) == len(set(rows)) == 100
