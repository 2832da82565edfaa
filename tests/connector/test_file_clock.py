"""Spark's worker processes use the time of a test's clock."""

import pytest
from pyrocket.testing import FileClock

# In every run, test_pytest_plugin.py writes and reads rows with a test's clock.
pytestmark = pytest.mark.heavy

NOON = 1_700_000_000_000


@pytest.fixture
def clock(box):
    clock = FileClock(box.path)
    clock.set(NOON)
    return clock


def times(box):
    """(stored, born) of all messages, in epoch milliseconds."""
    rows = box.read("storeTimestamp", "bornTimestamp")
    return sorted({tuple(round(each.timestamp() * 1000) for each in row) for row in rows})


def test_rows_written_by_tasks_have_the_time_of_the_clock_file(spark, box, clock):
    frame = spark.range(40).selectExpr("CAST(id AS STRING) body").repartition(3)
    for later in (0, 60_000):
        clock.set(NOON + later)
        frame.write.format("pyrocket").options(**box.options).mode("append").save()
    assert box.rows() == 80
    assert times(box) == [(NOON, NOON), (NOON + 60_000, NOON + 60_000)]
    table = spark.read.format("pyrocket").options(**box.options).load()
    found = table.selectExpr("unix_millis(storeTimestamp) ms").distinct().collect()
    assert sorted(row.ms for row in found) == [NOON, NOON + 60_000]


def test_a_streams_tasks_read_the_clock_file_in_every_batch(spark, box, clock, tmp_path):
    source = type(box)(str(tmp_path / "source")).create()
    target = {"checkpointLocation": str(tmp_path / "checkpoint"), **box.options}
    for later in (0, 60_000):
        clock.set(NOON + later)
        source.send(*(f"{later}:{n}" for n in range(8)))
        frame = spark.readStream.format("pyrocket").options(**source.options)
        frame = frame.option("startingOffsets", "earliest").load().select("body")
        query = frame.writeStream.format("pyrocket").options(**target)
        assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert times(box) == [(NOON, NOON), (NOON + 60_000, NOON + 60_000)]
