"""A restarted stream ignores the options for its start."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget
from support.stores import SMALL, set_disk_usage

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


def test_topics_that_a_restarted_query_reads_no_longer_or_newly_are_logged(box, start, caplog):
    """Two sources of a query that have changed places read all messages of both topics again."""
    box.create(queues=1).send("a", queue=0)
    stopped = json.loads(json.dumps(start(startingOffsets="latest").initialOffset()))
    box.other("u").create(queues=1).send("b", "c", queue=0)
    start().latestOffset(stopped, ReadAllAvailable())
    assert not caplog.messages
    end = start(topic="u").latestOffset(stopped, ReadAllAvailable())
    assert end["offsets"] == {"t": {"broker-a": {"0": 1}}, "u": {"broker-a": {"0": 2}}}
    assert caplog.messages == [
        "t is no longer read; the checkpoint keeps its offsets",
        "u is new, and is read from its first message",
    ]


def test_a_queue_that_was_added_and_lost_messages_is_logged(box, start, caplog, monkeypatch):
    """The query has read none of its messages, so that their number is not known."""
    set_disk_usage(monkeypatch, 100)
    box.recreate(SMALL)
    box.create(queues=1).send("a", queue=0)
    stopped = json.loads(json.dumps(start(startingOffsets="earliest").initialOffset()))
    box.grow(queues=2)
    box.send(*(str(number) + 200 * "." for number in range(60)), queue=1)
    start().latestOffset(stopped, ReadAllAvailable())
    assert not [line for line in caplog.messages if "was added" in line]
    with box.store() as store:
        store.clean(hours=0)
        minimum = store.min_offset("t", 1)
    forget(box.path)
    again = start(onDataLoss="skip")
    again.latestOffset(again.latestOffset(stopped, ReadAllAvailable()), ReadAllAvailable())
    (line,) = [line for line in caplog.messages if "was added" in line]
    assert minimum > 0
    assert f"starts at {minimum}: messages" in line
