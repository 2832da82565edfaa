"""A restarted stream ignores the options for its start."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget

SCHEMA = default_columns(kafka=False, headers=False, text=False)


@pytest.fixture
def start(box):
    """Start a query's reader, as each run of the query does."""
    yield lambda **options: DefaultSource({**box.options, **options}).streamReader(schema=SCHEMA)
    forget(box.path)


def test_ignoring_latest_in_a_restarted_query_is_logged(box, start, caplog):
    """Reported for rocketmq-spark (rocketmq-externals#901): old messages were read again despite
    `latest`.
    """
    box.create(queues=1).send("a", "b", queue=0)
    stopped = json.loads(json.dumps(start(startingOffsets="latest").initialOffset()))
    box.send("c", "d", "e", queue=0)
    with caplog.at_level("INFO", "pyspark_pyrocket"):
        again = start(startingOffsets="latest")
        end = again.latestOffset(stopped, ReadAllAvailable())
        again.latestOffset(end, ReadAllAvailable())
    (task,) = again.partitions(stopped, end)
    assert [(each.start, each.end) for each in task.work.ranges] == [(2, 5)]
    (line,) = [line for line in caplog.messages if "resuming" in line]
    assert line.startswith(
        f"resuming from the checkpoint on t in {box.path}; the configured start (latest) is "
        "ignored: 3 messages will be read, at most 256 MiB"
    )
