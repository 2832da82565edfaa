"""The views of pending messages: delayed messages with due times, and half messages."""

import shutil
from datetime import datetime, timezone

import pytest
from golden.java import GOLDEN, TXCHECK
from pyrocket import Message
from pyrocket.errors import OptionError, SchemaError
from pyspark.sql.types import StructType
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request


def load(spark, box, schema=None, **options):
    source = spark.read.format("pyrocket").options(**{**box.options, **options})
    return (source.schema(schema) if schema else source).load()


@pytest.fixture
def delayed(box):
    """Topic t with one message and two pending ones; topic u with one pending message."""
    box.create(queues=2)
    box.send("there", queue=0)
    with box.store() as store:
        store.topics.create("u")
        store.append(Message(topic="t", body=b"level", queue_id=1, delay_level=18, tags="A"))
        store.append(Message(topic="u", body=b"other", queue_id=0, delay_level=18))
        due = round(datetime.now(timezone.utc).timestamp() * 1000) + 3_600_000
        store.append(Message(topic="t", body=b"timer", queue_id=0, deliver_at_ms=due))
    return due


def test_scheduled_messages_are_rows_with_a_due_time(spark, box, delayed):
    frame = load(spark, box, view="scheduled")
    assert frame.columns[-1] == "dueTimestamp"
    rows = {row.body: row for row in frame.collect()}
    assert rows.keys() == {b"level", b"timer"}
    level, timer = rows[b"level"], rows[b"timer"]
    assert (level.topic, level.queueId, level.tags, level.properties) == ("t", 1, "A", {})
    waited = level.dueTimestamp - level.storeTimestamp
    assert waited.total_seconds() == 7200
    assert round(timer.dueTimestamp.timestamp() * 1000) == delayed


def test_a_schema_selects_the_columns_of_a_view(spark, box, delayed):
    schema = "dueTimestamp TIMESTAMP, topic STRING, value STRING"
    source = spark.read.format("pyrocket").schema(schema)
    frame = source.options(**box.target, subscribe="t,u", view="scheduled").load()
    assert sorted((row.topic, row.value) for row in frame.collect()) == [
        ("t", "level"),
        ("t", "timer"),
        ("u", "other"),
    ]
    assert frame.filter("dueTimestamp > now() + interval 90 minutes").count() == 2


def test_a_topic_without_delayed_messages_has_no_scheduled_rows(spark, box):
    box.send("there")
    assert load(spark, box, view="scheduled").count() == 0
    assert load(spark, box, view="half").count() == 0


def test_half_messages_are_rows(spark, box):
    shutil.copytree(GOLDEN / TXCHECK, box.path)
    with box.store() as store:
        store.topics.create("TopicTest")
    source = spark.read.format("pyrocket")
    frame = source.options(**box.target, topic="TopicTest", view="half").load()
    assert "dueTimestamp" not in frame.columns
    assert sorted(row.queueId for row in frame.collect()) == [0, 1]


# Refused on the driver


def test_a_view_is_rejected_for_streams(box, delayed):
    with pytest.raises(OptionError, match="'view' is for batch queries"):
        DefaultSource({**box.options, "view": "half"}).streamReader(
            schema=default_columns(kafka=False, headers=False, text=False)
        )


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_a_view_accepts_no_offsets(box, option):
    given = {**box.options, "view": "scheduled", option: '{"t":{"0":1}}'}
    with pytest.raises(OptionError, match=option) as caught:
        ReadOptions.parse(Request(given, "/", ""), "batch")
    assert caught.value.code == "OPTION_CONFLICT"


def test_an_unknown_view_is_rejected(box):
    with pytest.raises(OptionError, match="'view' is 'all'"):
        ReadOptions.parse(Request({**box.options, "view": "all"}, "/", ""), "batch")


@pytest.mark.parametrize("view", ["messages", "half"])
def test_only_scheduled_messages_have_a_due_time(box, delayed, view):
    schema = StructType().add("body", "binary").add("dueTimestamp", "timestamp")
    with pytest.raises(SchemaError, match="Only messages of view=scheduled or retry") as caught:
        DefaultSource({**box.options, "view": view}).reader(schema)
    assert caught.value.code == "COLUMN_UNKNOWN"
