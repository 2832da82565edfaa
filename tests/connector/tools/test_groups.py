"""Batch reads that start at a consumer group's offsets, and commit their end offsets at the end."""

import json

import pytest
from pyrocket import Store
from pyrocket.errors import (
    GroupNameError,
    OffsetOutOfRangeError,
    OptionError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from pyspark_pyrocket import BatchCommit, DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget
from support.direct import read

SCHEMA = default_columns(kafka=False, headers=False, text=False)


@pytest.fixture
def full(box):
    """Three messages in queue 0, two in queue 1."""
    box.create(queues=2)
    box.send("a", "b", "c", queue=0)
    box.send("d", "e", queue=1)
    yield box
    forget(box.path)


def committed(box, group="export"):
    with Store.open(box.path, read_only=True) as store:
        return store.groups.committed(group, box.topic)


def planned(batch):
    """Return the messages that the tasks of a read with the batch's options read."""
    reader = DefaultSource(dict(batch.options)).reader(schema=SCHEMA)
    return sorted(
        (each.queue.topic, each.queue.queue_id, each.start, each.end)
        for part in reader.partitions()
        for each in part.work.ranges
    )


def test_a_batch_read_commits_at_its_end(spark, full):
    with BatchCommit.plan("export", **full.options) as batch:
        rows = spark.read.format("pyrocket").options(**batch.options)
        found = rows.schema("body STRING").load().collect()
        assert sorted(row.body for row in found) == ["a", "b", "c", "d", "e"]
    assert committed(full) == {0: 3, 1: 2}
    with BatchCommit.plan("export", **full.options) as batch:
        assert read(dict(batch.options), "body STRING") == []
    assert committed(full) == {0: 3, 1: 2}


def test_nothing_is_committed_before_the_end_or_after_a_failure(full):
    batch = BatchCommit.plan("export", **full.options)
    planned(batch)
    assert committed(full) == {}
    with pytest.raises(RuntimeError), batch:
        raise RuntimeError("the result could not be written")
    assert committed(full) == {}


def test_a_plan_is_the_same_for_all_reads(full):
    batch = BatchCommit.plan("export", **full.options)
    full.send("later", queue=0)
    full.grow(queues=3)
    first = [("t", 0, 0, 3), ("t", 1, 0, 2)]
    batch.commit()
    full.grow(queues=2)
    assert planned(batch) == planned(batch) == first
    assert batch.messages == 5
    assert planned(BatchCommit.plan("export", **full.options)) == [("t", 0, 3, 4)]


def test_a_group_that_has_progressed_in_the_meantime_is_not_moved_backwards(full):
    batch = BatchCommit.plan("export", **full.options)
    full.send("later", queue=0)
    BatchCommit.plan("export", **full.options).commit()
    batch.commit()
    assert committed(full) == {0: 4, 1: 2}


def test_the_end_can_be_given_and_further_options_are_passed_on(full):
    batch = BatchCommit.plan(
        "export",
        path=full.path,
        subscribe="t",
        endingOffsets='{"t":{"0":2,"1":0}}',
        valueFormat="string",
        verifyCrc=True,
    )
    assert batch.messages == 2
    assert json.loads(batch.options["endingOffsets"]) == {"t": {"0": 2, "1": 0}}
    assert batch.options["valueFormat"] == "string"
    assert batch.options["verifyCrc"] == "true"


def test_given_starting_offsets_override_the_group(full):
    BatchCommit.plan("export", **full.options).commit()
    assert BatchCommit.plan("export", **full.options).messages == 0
    assert BatchCommit.plan("export", **full.options, startingOffsets="earliest").messages == 5


def test_the_topics_of_a_pattern_are_fixed_by_the_plan(full):
    batch = BatchCommit.plan("export", **full.target, subscribePattern="t.*")
    full.other("tt").create()
    assert planned(batch) == [("t", 0, 0, 3), ("t", 1, 0, 2)]


def test_only_the_assigned_queues_are_read_and_committed(full):
    batch = BatchCommit.plan("export", **full.target, assign='{"t":[1]}')
    assert planned(batch) == [("t", 1, 0, 2)]
    batch.commit()
    assert committed(full) == {1: 2}


def test_a_recreated_topic_is_not_committed(full):
    batch = BatchCommit.plan("export", **full.options)
    with full.store() as store:
        store.topics.delete("t")
    full.create(queues=2)
    with pytest.raises(TopicRecreatedError):
        batch.commit()
    assert committed(full) == {}


def test_a_queue_removed_since_the_plan_does_not_prevent_the_commit_of_others(full):
    batch = BatchCommit.plan("export", **full.options)
    full.grow(queues=1)
    batch.commit()
    assert committed(full) == {0: 3}


def test_deleted_messages_that_a_group_has_not_read_are_a_loss(full):
    with full.store() as store:
        store.groups.commit("export", "t", {0: 1, 1: 1})
        store.topics.delete("t")
        store.topics.create("t", read_queues=2, write_queues=2)
        store.groups.commit("export", "t", {0: 1, 1: 1})
    with pytest.raises(OffsetOutOfRangeError, match="group 'export'"):
        BatchCommit.plan("export", **full.options)
    assert BatchCommit.plan("export", **full.options, onDataLoss="skip").messages == 0


def test_invalid_options_raise_the_errors_of_a_read(full):
    with pytest.raises(TopicNotFoundError):
        BatchCommit.plan("export", **full.target, subscribe="none")
    with pytest.raises(OptionError, match="Did you mean 'startingOffsets'"):
        BatchCommit.plan("export", **full.options, startingOfsets="earliest")
    with pytest.raises(GroupNameError, match="a b"):
        BatchCommit.plan("a b", **full.options)
