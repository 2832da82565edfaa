"""Selecting messages by tags, and by SQL on their properties."""

import logging

import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.errors import OptionError
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.options.option import BATCH, STREAM
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from support import direct

MAP = pa.map_(pa.string(), pa.string())
SCHEMA = "queueOffset BIGINT, body STRING"


def read(query=BATCH, **options):
    return ReadOptions.parse(Request({"path": "/s", "subscribe": "t", **options}, "/"), query)


def fill(box, first=0):
    """Twelve messages in queue 0, with the tag paid, shipped or none, and rising prices."""
    numbers = range(first, first + 12)
    box.send(
        *(f"m{number}" for number in numbers),
        queue=0,
        tags=pa.array([("paid", "shipped", None)[number % 3] for number in numbers]),
        properties=pa.array(
            [[("price", str(number)), ("region", "EU")] for number in numbers], MAP
        ),
    )


@pytest.fixture
def filled(box):
    box.create(queues=2)
    fill(box)
    return box


def directly(box, **options):
    """Return the rows of a batch read's tasks."""
    return [tuple(row.values()) for row in direct.read(box.options, SCHEMA, **options)]


def numbers(rows):
    return [int(body[1:]) for _, body in rows]


def test_tags_are_filtered_without_reading_the_log(filled):
    """A corrupt record with another tag would fail the read if it were read."""
    with Store.open(filled.path, read_only=True) as store:
        other = store.read("t", 0, 2, 1)[0].physical_offset
        (log,) = (store.path / "commitlog").iterdir()
        with log.open("r+b") as file:
            file.seek(other - int(log.name))
            file.write(b"\xff" * 80)
    rows = directly(filled, tags="paid || shipped")
    assert rows == [(n, f"m{n}") for n in range(12) if n % 3 < 2]


def test_sql92_selects_messages_by_properties(filled):
    sql = "region = 'EU' AND price BETWEEN 5 AND 7 OR TAGS = 'paid' AND price < 2"
    assert numbers(directly(filled, sql=sql)) == [0, 5, 6, 7]


def test_tags_are_separated_by_bars(filled):
    assert numbers(directly(filled, tags="paid")) == [0, 3, 6, 9]
    assert numbers(directly(filled, tags=" shipped||paid ")) == [0, 1, 3, 4, 6, 7, 9, 10]
    assert directly(filled, tags="returned") == []


@pytest.mark.parametrize("tags", ["*", "", "  "])
def test_an_empty_tag_filter_and_a_star_select_every_message(filled, tags):
    assert numbers(directly(filled, tags=tags)) == [*range(12)]


def test_sub_expression_is_another_name_for_tags(filled):
    assert numbers(directly(filled, subExpression="paid")) == [0, 3, 6, 9]
    with pytest.raises(OptionError, match="same") as caught:
        read(tags="a", subExpression="b")
    assert caught.value.code == "OPTION_CONFLICT"


def test_tags_and_sql_must_both_match(filled):
    assert numbers(directly(filled, tags="paid", sql="price > 5")) == [6, 9]


@pytest.mark.parametrize(
    ("tags", "meant"),
    [
        ("a | b", "a || b"),
        ("a,b", "a || b"),
        ("a, b ,c", "a || b || c"),
        ("a OR b", "a || b"),
        ("a or b and c", "a || b || c"),
        ("x || a,b", "a || b"),
    ],
)
@pytest.mark.parametrize("option", ["tags", "subExpression"])
def test_tags_with_another_separator_are_rejected(option, tags, meant):
    tag = tags.split("||")[-1].strip()
    with pytest.raises(OptionError, match=f"'{option}' is") as info:
        read(**{option: tags})
    assert repr(meant) in info.value.remedy
    assert f"TAGS = '{tag}'" in info.value.remedy
    assert read(sql=f"TAGS = '{tag}'").selection.where.matches({"TAGS": tag})


@pytest.mark.parametrize("tag", ["order", "new order", "band-or", "and", "or", "a;b", "ORDER"])
def test_tags_may_contain_the_letters_of_other_separators(tag):
    assert read(tags=tag).selection.where.tags == {tag}


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        ({"tags": "||"}, "TAGS_INVALID", "'tags'"),
        ({"subExpression": "|| ||"}, "TAGS_INVALID", "'subExpression'"),
        ({"sql": "price >"}, "SQL_INVALID", "'sql'.*character 8"),
        ({"sql": "price > 'x'"}, "SQL_INVALID", "character 7"),
        ({"sql": " "}, "OPTION_INVALID", "condition on properties"),
        ({"tags": "a", "view": "half"}, "OPTION_CONFLICT", "'tags'.*view=half"),
        ({"sql": "a = 1", "view": "scheduled"}, "OPTION_CONFLICT", "'sql'.*view=scheduled"),
    ],
)
def test_an_invalid_filter_is_rejected_on_the_driver(options, code, reason):
    with pytest.raises(OptionError, match=reason) as caught:
        read(**options)
    assert caught.value.code == code
    assert caught.value.remedy


def test_batches_and_streams_have_filters_and_writes_do_not():
    assert read(BATCH, tags="a").selection == read(STREAM, tags="a").selection
    source = DefaultSource({"path": "/s", "topic": "t", "tags": "a"})
    with pytest.raises(OptionError, match="for batch and stream queries"):
        source.writer(None, False)


def test_a_task_logs_its_filter_and_the_number_of_dropped_messages(filled, caplog):
    with caplog.at_level(logging.INFO, "pyspark_pyrocket"):
        directly(filled, tags="paid || shipped", sql="price > 8")
    (line,) = caplog.messages
    assert line == (
        "tags paid || shipped and sql price > 8 selected 2 of 12 messages of t/0:"
        " 4 were skipped by the hash of their tags, 6 by their properties"
    )


def test_a_task_without_a_filter_logs_nothing(filled, caplog):
    with caplog.at_level(logging.INFO, "pyspark_pyrocket"):
        directly(filled)
    assert not caplog.messages
