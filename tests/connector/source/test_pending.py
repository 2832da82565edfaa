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
from support.direct import read


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


def test_scheduled_messages_are_rows_with_a_due_time(box, delayed):
    rows = {row["body"]: row for row in read(box.options, view="scheduled")}
    assert rows.keys() == {b"level", b"timer"}
    level, timer = rows[b"level"], rows[b"timer"]
    assert [*level][-1] == "dueTimestamp"
    assert [level[name] for name in ("topic", "queueId", "tags", "properties")] == ["t", 1, "A", []]
    assert (level["dueTimestamp"] - level["storeTimestamp"]).total_seconds() == 7200
    assert round(timer["dueTimestamp"].timestamp() * 1000) == delayed


def test_a_schema_selects_the_columns_of_a_view(box, delayed):
    schema = "topic STRING, value STRING"
    rows = read(box.target, schema, subscribe="t,u", view="scheduled")
    assert sorted(tuple(row.values()) for row in rows) == [
        ("t", "level"),
        ("t", "timer"),
        ("u", "other"),
    ]


def test_a_topic_without_delayed_messages_has_no_scheduled_rows(box):
    box.send("there")
    assert read(box.options, view="scheduled") == read(box.options, view="half") == []


def test_half_messages_are_rows(box):
    shutil.copytree(GOLDEN / TXCHECK, box.path)
    with box.store() as store:
        store.topics.create("TopicTest")
    rows = read(box.target, topic="TopicTest", view="half")
    assert "dueTimestamp" not in rows[0]
    assert sorted(row["queueId"] for row in rows) == [0, 1]


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
