"""A topic that a query has read is deleted while the query is stopped.

The query then continues by `onDataLoss`, as if it had been running.
"""

import json

import pytest
from pyrocket import RemoteAdmin, Store
from pyrocket.errors import DataLossError, OptionError, TopicNotFoundError, TopicRecreatedError
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget

SCHEMA = default_columns(kafka=False, headers=False, text=False)
ALL = ReadAllAvailable()
GO_ON = ("skip", pytest.param("earliest", marks=pytest.mark.heavy), "latest")
ASKED = [{"subscribe": "t"}, {"assign": '{"t":[0]}'}, {"subscribePattern": "t"}]
TRIGGERS = ["continuous", "available now"]


@pytest.fixture(autouse=True)
def forgotten(box):
    yield
    forget(box.path)


def source(box, asked, **options):
    return DefaultSource({**box.target, **asked, "startingOffsets": "earliest", **options})


def restarted(box, asked, trigger, **options):
    """Do what Spark does up to the first call about offsets."""
    forget(box.path)
    assert source(box, asked, **options).schema() == SCHEMA
    reader = source(box, asked, **options).streamReader(schema=SCHEMA)
    if trigger == "available now":
        reader.prepareForTriggerAvailableNow()
    return reader


def through_spark(offset):
    return json.loads(json.dumps(offset))


def read(reader, start):
    """Plan one micro-batch; return its end and the bodies that its tasks read."""
    end = through_spark(reader.latestOffset(start, ALL))
    tasks = [] if end == start else reader.partitions(start, end)
    batches = [batch for task in tasks for batch in reader.read(task)]
    return end, [body for batch in batches for body in batch["body"].to_pylist()]


def delete(box):
    if box.address:
        with box.client() as client:
            RemoteAdmin(client).topics.delete(box.topic)
        return
    with Store.open(box.path) as store:
        store.topics.delete(box.topic)


@pytest.fixture
def stopped(box):
    """Return a function that runs a query over two messages, and deletes the topic afterwards."""

    def run(asked, unread=0):
        box.create(queues=1).send("a", "b", queue=0)
        reader = source(box, asked).streamReader(schema=SCHEMA)
        end, bodies = read(reader, through_spark(reader.initialOffset()))
        assert bodies == [b"a", b"b"]
        if unread:
            box.send(*["unread"] * unread, queue=0)
        delete(box)
        return end

    return run


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("asked", ASKED[:2], ids=["subscribe", "assign"])
def test_fail_reports_a_deleted_topic_as_deleted(box, stopped, asked, trigger):
    end = stopped(asked)
    with pytest.raises(DataLossError) as caught:
        restarted(box, asked, trigger).latestOffset(end, ALL)
    assert caught.value.code == "TOPIC_DELETED"


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_fail_reports_a_deleted_topic_of_a_pattern_if_messages_were_unread(box, stopped, trigger):
    end = stopped(ASKED[2], unread=1)
    with pytest.raises(DataLossError) as caught:
        restarted(box, ASKED[2], trigger).latestOffset(end, ALL)
    assert caught.value.code == "TOPIC_DELETED"


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_the_only_topic_of_a_pattern_may_be_deleted_after_it_was_read(box, stopped, trigger):
    end = stopped(ASKED[2])
    reader = restarted(box, ASKED[2], trigger)
    assert reader.latestOffset(end, ALL) == end
    assert reader.reportLatestOffset()["offsets"] == {}


@pytest.mark.parametrize("policy", GO_ON)
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("asked", ASKED, ids=["subscribe", "assign", "pattern"])
def test_a_query_waits_for_its_deleted_topic(box, stopped, asked, trigger, policy):
    """It counts what it has not read, and reads the topic when it is created again."""
    end = stopped(asked, unread=3)
    reader = restarted(box, asked, trigger, onDataLoss=policy)
    later, bodies = read(reader, end)
    assert bodies == []
    assert sum(later["lost"]["t"]["broker-a"].values()) == 3
    assert reader.latestOffset(later, ALL) == later
    box.create(queues=1).send("new", queue=0)
    reader = restarted(box, asked, trigger, onDataLoss=policy)
    _, bodies = read(reader, later)
    # The topic of a pattern continues where the query stopped: its new message is not after a loss.
    skips = policy == "latest" and "subscribePattern" not in asked
    assert bodies == ([] if skips else [b"new"])


def test_a_topic_of_the_checkpoint_is_not_created_again(box, stopped):
    asked = {"subscribe": "t", "createIfMissing": "true"}
    end = stopped(asked)
    with pytest.raises(DataLossError) as caught:
        restarted(box, asked, "continuous").latestOffset(end, ALL)
    assert caught.value.code == "TOPIC_DELETED"


def test_a_topic_that_a_restarted_query_adds_is_created(box, stopped):
    end = stopped({"subscribe": "t"})
    asked = {"subscribe": "t,added", "createIfMissing": "true", "onDataLoss": "skip"}
    end, _ = read(restarted(box, asked, "continuous"), end)
    box.other("added").send("x", queue=0)
    _, bodies = read(restarted(box, asked, "continuous"), end)
    assert bodies == [b"x"]


@pytest.mark.parametrize("policy", GO_ON)
def test_the_first_micro_batch_is_replayed_without_its_topic(box, policy):
    """Spark requests the initial offset again, for which the topic is missing."""
    asked = {"subscribe": "t", "startingOffsets": '{"t":{"0":0}}'}
    box.create(queues=1).send("a", queue=0)
    reader = source(box, asked, **asked).streamReader(schema=SCHEMA)
    end = through_spark(reader.latestOffset(through_spark(reader.initialOffset()), ALL))
    delete(box)
    reader = restarted(box, asked, "continuous", **asked, onDataLoss=policy)
    start = through_spark(reader.initialOffset())
    assert reader.partitions(start, end) == []
    assert reader.latestOffset(end, ALL) == end
    failing = restarted(box, asked, "continuous", **asked)
    with pytest.raises(DataLossError) as caught:
        failing.partitions(through_spark(failing.initialOffset()), end)
    assert caught.value.code == "TOPIC_DELETED"


def test_fail_reports_a_topic_that_was_created_again(box, stopped):
    end = stopped({"subscribe": "t"})
    box.create(queues=1)
    with pytest.raises(TopicRecreatedError):
        restarted(box, {"subscribe": "t"}, "continuous").latestOffset(end, ALL)


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"subscribe": "t"}, TopicNotFoundError),
        ({"assign": '{"t":[0]}'}, TopicNotFoundError),
        ({"subscribePattern": "t"}, TopicNotFoundError),
        ({"subscribe": "u", "startingOffsets": '{"x":{"0":0}}'}, OptionError),
    ],
    ids=["subscribe", "assign", "pattern", "offsets"],
)
def test_a_new_query_with_a_wrong_topic_fails_before_its_first_micro_batch(
    box, asked, error, trigger
):
    """A new query has no checkpoint that knows the topic."""
    box.other("u").create(queues=1)
    reader = restarted(box, asked, trigger, **asked)
    start = through_spark(reader.initialOffset())
    for _ in range(2):
        with pytest.raises(error):
            reader.latestOffset(start, ALL)
