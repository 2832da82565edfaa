"""Inferred columns are those of the messages read, whatever their distribution over queues."""

import pyarrow as pa
import pytest
from pyrocket import Message, Store, StoreSource
from pyrocket.errors import SchemaError
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source import infer_schema
from pyspark_pyrocket.source.batch_reader import default_schema
from support.direct import read


def request(box, **options):
    return Request({"path": box.path, "valueFormat": "json", **options}, "/")


def fields(box, **options):
    """Return the inferred columns of a batch without valueSchema."""
    names = default_schema(request(box, **options)).names
    return [name for name in names if name in ("a", "b", "late")]


def test_the_unused_share_of_short_queues_is_given_to_others(box):
    box.create(queues=10)
    for queue in range(9):
        box.send('{"a":1}', queue=queue)
    box.send(*['{"a":1}'] * 150, *['{"a":1,"late":2}'] * 350, queue=9)
    assert fields(box, topic="t") == ["a", "late"]


def test_no_more_than_1000_messages_are_sampled(box, monkeypatch):
    box.create(queues=3)
    for queue, count in enumerate((1300, 1, 1300)):
        box.send(*['{"a":1}'] * count, queue=queue)
    seen = []
    slices = StoreSource.slices

    def spied(self, ranges, **more):
        for each in slices(self, ranges, **more):
            seen.extend([each.queue.queue_id] * len(each))
            yield each

    monkeypatch.setattr(StoreSource, "slices", spied)
    fields(box, topic="t")
    assert [seen.count(queue) for queue in range(3)] == [500, 1, 499]


@pytest.fixture
def changed(box):
    """A topic whose later messages, beyond the sample, have another schema."""
    box.create(queues=1)
    box.send(*['{"a":1}'] * 1200, queue=0, tags=pa.array(["A"] * 1200))
    box.send(*['{"b":1}'] * 10, queue=0, tags=pa.array(["B"] * 10))
    return box


@pytest.mark.parametrize(
    "options",
    [
        {"tags": "B"},
        {"sql": "TAGS IS NOT NULL AND TAGS <> 'A'"},
        {"lastN": "10"},
        {"startingOffsets": '{"t":{"0":1200}}'},
        {"startingOffsets": '{"t":{"0":1190}}', "tags": "B"},
    ],
)
def test_columns_are_inferred_from_the_messages_read(changed, options):
    assert fields(changed, topic="t", **options) == ["b"]


def test_columns_are_not_inferred_from_messages_after_the_end(changed):
    options = {"startingOffsets": '{"t":{"0":1190}}', "endingOffsets": '{"t":{"0":1200}}'}
    assert fields(changed, topic="t", **options) == ["a"]


@pytest.mark.parametrize("options", [{"tags": "C"}, {"startingTimestamp": "now"}])
def test_an_empty_read_has_the_columns_of_its_topic(changed, options):
    assert fields(changed, topic="t", **options) == ["a"]


def test_a_filter_that_matches_almost_nothing_does_not_search_the_whole_log(changed, monkeypatch):
    monkeypatch.setattr(infer_schema, "SEARCHED_BYTES", 20_000)
    monkeypatch.setattr(infer_schema, "_WINDOW_BYTES", 5_000)
    assert fields(changed, topic="t", tags="B") == ["a"]


def test_messages_that_match_a_filter_are_found_window_by_window(changed, monkeypatch):
    monkeypatch.setattr(infer_schema, "_WINDOW_BYTES", 1)
    monkeypatch.setattr(infer_schema, "SEARCHED_BYTES", 10_000)
    assert fields(changed, topic="t", tags="B", lastN="12") == ["b"]


@pytest.mark.parametrize("options", [{"view": "commitlog"}, {"view": "scheduled", "topic": "t"}])
def test_a_view_has_the_columns_of_its_messages(box, options):
    box.create(queues=1)
    with Store.open(box.path) as store:
        store.append(Message(topic="t", body=b'{"b":7}', queue_id=0, delay_level=18))
    rows = read({"path": box.path, "valueFormat": "json"}, **options)
    assert [row["b"] for row in rows] == [7]


@pytest.mark.parametrize("view", ["commitlog", "retry", "dlq", "half", "scheduled"])
def test_a_view_without_a_json_body_fails_with_an_error_that_asks_for_a_schema(box, view):
    box.create(queues=1)
    with pytest.raises(SchemaError, match=rf"messages of view={view} is.*valueSchema") as info:
        fields(box, view=view)
    assert info.value.code == "VALUE_SCHEMA_UNKNOWN"
