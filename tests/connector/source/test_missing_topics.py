"""Topics and stores that do not exist yet when a query starts."""

import json
import os
import shutil

import pytest
from pyrocket import Store
from pyrocket.errors import (
    InvalidInputError,
    OptionError,
    SchemaError,
    StoreNotFoundError,
    TopicNotFoundError,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import BatchCommit, DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget

SCHEMA = default_columns(kafka=False, headers=False, text=False)
ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def forgotten(box):
    yield
    forget(box.path)


def source(box, **options):
    return DefaultSource({**box.options, "startingOffsets": "earliest", **options})


def query(box, **options):
    return source(box, **options).streamReader(schema=SCHEMA)


def bodies(reader, start):
    """Run a query until nothing is left; return the bodies that it reads, and its last offset."""
    found = []
    while (end := json.loads(json.dumps(reader.latestOffset(start, ALL)))) != start:
        for task in reader.partitions(start, end):
            found += [body for part in reader.read(task) for body in part["body"].to_pylist()]
        start = end
    return found, start


def empty_store(box):
    with box.store():
        pass


def test_a_query_that_waits_for_its_topic_needs_neither_topic_nor_columns(box):
    empty_store(box)
    waiting = source(box, missingTopic="wait")
    assert waiting.schema() == SCHEMA
    reader = waiting.streamReader(schema=SCHEMA)
    initial = reader.initialOffset()
    assert initial["offsets"] == {"t": {"broker-a": {}}}
    assert bodies(reader, initial) == ([], initial)
    assert reader.reportLatestOffset()["offsets"] == {}
    box.create(queues=2).send("a", "b", queue=1)
    read, offset = bodies(reader, initial)
    assert read == [b"a", b"b"]
    assert offset["offsets"] == {"t": {"broker-a": {"0": 0, "1": 2}}}


def test_a_query_that_waits_still_needs_a_store(box):
    with pytest.raises(StoreNotFoundError):
        query(box, missingTopic="wait").initialOffset()


def test_available_now_ends_immediately_if_no_topic_exists(box):
    empty_store(box)
    reader = query(box, missingTopic="wait")
    reader.prepareForTriggerAvailableNow()
    initial = reader.initialOffset()
    box.create(queues=1).send("later")
    assert reader.latestOffset(initial, ALL) == initial


def test_a_batch_that_waits_for_its_topics_is_empty_without_them(box):
    empty_store(box)
    assert source(box, missingTopic="wait").reader(schema=SCHEMA).partitions() == []
    with pytest.raises(TopicNotFoundError, match="'t'"):
        source(box).reader(schema=SCHEMA).partitions()


def test_a_plan_of_a_batch_needs_a_topic(box):
    empty_store(box)
    options = {**box.target, "subscribe": "t", "missingTopic": "wait"}
    with pytest.raises(TopicNotFoundError, match="None of the topics"):
        BatchCommit.plan("g", **options)


def test_columns_cannot_be_inferred_from_a_missing_topic(box):
    empty_store(box)
    with pytest.raises(SchemaError, match=r"messages of t .*'valueSchema'"):
        source(box, missingTopic="wait", valueFormat="json").schema()
    shutil.rmtree(box.path)
    with pytest.raises(SchemaError, match=r"messages of t .*'valueSchema'"):
        source(box, createIfMissing="true", valueFormat="json").schema()


def test_a_group_follows_a_query_that_waits_for_one_of_its_topics(box, caplog):
    box.create(queues=1).send("a", "b")
    options = {"subscribe": "t,later", "missingTopic": "wait", "commitToGroup": "billing"}
    asked = {**box.target, "startingOffsets": "earliest", **options}
    reader = DefaultSource(asked).streamReader(schema=SCHEMA)
    _, offset = bodies(reader, reader.initialOffset())
    reader.latestOffset(offset, ALL)
    reader.stop()
    with Store.open(box.path, read_only=True) as store:
        assert store.groups.committed("billing", "t") == {0: 2}
    assert "has no offsets in topic" not in caplog.text


def test_a_new_query_creates_its_store_and_topic_when_spark_asks_where_it_starts(box):
    asked = source(box, createIfMissing="true")
    assert asked.schema() == SCHEMA
    reader = asked.streamReader(schema=SCHEMA)
    reader.prepareForTriggerAvailableNow()
    assert not os.path.exists(box.path), "a restarted query also reaches this point"
    reader.initialOffset()
    with Store.open(box.path, read_only=True) as store:
        assert (store.topics.get("t").read_queues, store.topics.get("t").write_queues) == (4, 4)


def test_the_group_of_a_query_is_prepared_in_the_store_that_the_query_creates(box):
    created = {"createIfMissing": "true", "valueFormat": "json", "valueSchema": "a INT"}
    created |= {"badRecordsTopic": "bad", "commitToGroup": "billing"}
    asked = source(box, **created)
    asked.streamReader(schema=asked.schema()).initialOffset()
    with Store.open(box.path, read_only=True) as store:
        assert set(store.topics.all()) == {"t", "bad"}
        assert list(store.groups.all()) == ["billing"]


def test_a_restarted_query_never_creates_its_store(box):
    """The disk of the store may not be mounted."""
    box.create(queues=1).send("a")
    _, offset = bodies(reader := query(box, createIfMissing="true"), reader.initialOffset())
    forget(box.path)
    os.rename(box.path, f"{box.path}-elsewhere")
    restarted = query(box, createIfMissing="true")
    restarted.prepareForTriggerAvailableNow()
    with pytest.raises(StoreNotFoundError):
        restarted.latestOffset(offset, ALL)
    with pytest.raises(StoreNotFoundError):
        restarted.partitions(offset, offset)
    assert not os.path.exists(box.path)


def test_a_topic_is_created_in_an_existing_store_and_an_existing_one_is_unchanged(box):
    box.create(queues=1)
    reader = query(box, topic="t", createIfMissing="true")
    assert list(reader.initialOffset()["offsets"]["t"]["broker-a"]) == ["0"]
    other = box.other("other")
    assert list(query(other, createIfMissing="true").initialOffset()["offsets"]) == ["other"]


def test_a_store_with_all_topics_is_not_opened_for_writing(box, monkeypatch):
    box.create(queues=1)
    opened = []
    monkeypatch.setattr(Store, "deliver_due", lambda self: False)
    real = Store.open.__func__

    def noting(cls, path, **options):
        opened.append(options.get("read_only", False))
        return real(cls, path, **options)

    monkeypatch.setattr(Store, "open", classmethod(noting))
    query(box, createIfMissing="true").initialOffset()
    assert set(opened) == {True}


def test_a_created_topic_has_the_assigned_number_of_queues(box):
    options = {**box.target, "assign": '{"t": [0, 6], "u": [1]}', "createIfMissing": "true"}
    DefaultSource(options).streamReader(schema=SCHEMA).initialOffset()
    with Store.open(box.path, read_only=True) as store:
        assert (store.topics.get("t").read_queues, store.topics.get("u").read_queues) == (7, 4)


def test_a_pattern_creates_a_store_and_no_topic(box):
    options = {**box.target, "subscribePattern": "t.*", "createIfMissing": "true"}
    reader = DefaultSource({**options, "missingTopic": "wait"}).streamReader(schema=SCHEMA)
    initial = reader.initialOffset()
    assert initial["offsets"] == {}
    box.create(queues=1).send("a")
    assert bodies(reader, initial)[0] == [b"a"]


def test_a_folder_that_is_not_a_store_does_not_become_one(box):
    os.makedirs(f"{box.path}/other")
    with pytest.raises(StoreNotFoundError) as info:
        query(box, createIfMissing="true").initialOffset()
    assert info.value.code == "STORE_DIRECTORY_NOT_EMPTY"


def test_a_topic_with_an_illegal_name_is_rejected(box):
    with pytest.raises(InvalidInputError, match="no/name"):
        query(box, topic="no/name", createIfMissing="true").initialOffset()


def test_by_default_a_query_creates_nothing(box):
    for options in ({}, {"createIfMissing": "false"}):
        with pytest.raises(StoreNotFoundError):
            query(box, **options).initialOffset()
    assert not os.path.exists(box.path)


def test_create_if_missing_is_rejected_for_read_only_queries_and_batches(box):
    with pytest.raises(OptionError, match="readOnly=true") as info:
        query(box, createIfMissing="true", readOnly="true")
    assert info.value.code == "OPTION_CONFLICT"
    query_of_a_batch = source(box, createIfMissing="true")
    with pytest.raises(OptionError, match="missingTopic=wait"):
        query_of_a_batch.reader(schema=SCHEMA)


def test_the_stages_of_a_new_pipeline_start_in_any_order(spark, box, stream, tmp_path):
    """The last stage starts first: the store does not exist yet, and no columns are given."""
    stream.options |= {"topic": "out", "createIfMissing": "true"}
    stream.schema = ""
    last = stream.start()
    frame = spark.readStream.format("pyrocket").options(**box.target, topic="in")
    frame = frame.options(createIfMissing="true", startingOffsets="earliest").load()
    writer = frame.select("body").writeStream.format("pyrocket")
    writer = writer.options(**box.target, topic="out", checkpointLocation=tmp_path / "middle")
    middle = writer.start()
    try:
        box.other("in").send("a", "b", "c")
        middle.processAllAvailable()
        last.processAllAvailable()
    finally:
        middle.stop()
        last.stop()
    read = spark.read.parquet(str(stream.folder / "out")).select("body").collect()
    assert sorted(bytes(row.body) for row in read) == [b"a", b"b", b"c"]
