"""The stream reader between micro-batches, called as by Spark's source runner."""

import json
import pickle
import sys
import time
from dataclasses import replace

import pytest
from pyrocket import Message, Store
from pyrocket.testing import FileClock
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget
from support.transports import options_of

SCHEMA = default_columns(kafka=False, headers=False, text=False)
ALL = ReadAllAvailable()


@pytest.fixture
def reader(box):
    """A reader that starts at the first message."""
    box.create(queues=2)
    yield make(box, startingOffsets="earliest")
    forget(box.path)


def make(box, **options):
    return DefaultSource({**box.options, **options}).streamReader(schema=SCHEMA)


def through_spark(offset):
    return json.loads(json.dumps(offset))


def test_an_idle_query_gets_its_start_object_back(box, reader):
    box.send("x")
    end = through_spark(reader.latestOffset(reader.initialOffset(), ALL))
    for _ in range(3):
        assert reader.latestOffset(end, ALL) is end
    equal = through_spark(end)
    assert reader.latestOffset(equal, ALL) is equal


def test_an_idle_query_reads_only_the_shared_state(box, reader, monkeypatch):
    box.send("x")
    end = through_spark(reader.latestOffset(reader.initialOffset(), ALL))
    reader.latestOffset(end, ALL)
    reader.reportLatestOffset()
    monkeypatch.setattr("pyrocket.Store.offsets", lambda *_: pytest.fail("asked for offsets"))
    monkeypatch.setattr("pyrocket.Store.topics", lambda *_: pytest.fail("asked for topics"))
    reader.latestOffset(end, ALL)
    reader.reportLatestOffset()


def test_an_idle_call_finds_its_store_once_and_checks_no_configuration(box, reader):
    """Spark calls 85 times a second; configuring a delivery took 127 function calls each time."""
    box.send("x")
    end = through_spark(reader.latestOffset(reader.initialOffset(), ALL))
    reader.latestOffset(end, ALL)
    called = []
    sys.setprofile(lambda frame, event, _: event == "call" and called.append(frame.f_code.co_name))
    reader.latestOffset(end, ALL)
    sys.setprofile(None)
    assert called.count("open_source") == 1
    assert len(called) < 75, called


@pytest.fixture
def delayed(box):
    """Send a message with a delay of a second; return the clock of the store."""
    box.create(queues=2)
    clock = FileClock(box.path)
    clock.set(1_700_000_000_000)
    with Store.open(box.path) as store:
        store.append(Message(topic="t", body=b"x", queue_id=0, delay_level=1))
    yield clock
    forget(box.path)


def test_delayed_messages_are_delivered_without_a_writer(box, delayed):
    reader = make(box, startingOffsets="earliest")
    start = through_spark(reader.latestOffset(reader.initialOffset(), ALL))
    assert box.read("body") == [], "not due"
    delayed.advance(1000)
    end = start
    until = time.monotonic() + 60
    while end == start and time.monotonic() < until:
        end = through_spark(reader.latestOffset(start, ALL))
    assert [body for _, body in box.read("queueOffset", "body")] == [b"x"]
    assert end != start


def test_available_now_begins_with_the_delivery_of_due_messages(box, delayed):
    reader = make(box, startingOffsets="earliest")
    delayed.advance(1000)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(reader.initialOffset(), ALL) != reader.initialOffset()


def test_a_new_message_ends_the_idle_time(box, reader):
    start = through_spark(reader.initialOffset())
    assert reader.latestOffset(start, ALL) is start
    box.send("x")
    assert reader.latestOffset(start, ALL)["offsets"] != start["offsets"]


def test_an_append_to_another_topic_returns_the_start_itself(box, reader):
    start = through_spark(reader.initialOffset())
    reader.latestOffset(start, ALL)
    type(box)(box.path, "other").send("x")
    assert reader.latestOffset(start, ALL) is start


def test_the_initial_offset_does_not_move_while_the_query_runs(box):
    box.create()
    reader = make(box, startingOffsets="latest")
    first = reader.initialOffset()
    box.send("x")
    assert reader.initialOffset() == first
    assert first["initial"] is True


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadMaxBytes(256 << 20)),
        ({"maxBytesPerTrigger": "none"}, ReadAllAvailable()),
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "1k"}, ReadMaxRows(5)),
        ({"maxOffsetsPerTrigger": "0", "minOffsetsPerTrigger": "9"}, ReadMinRows(9)),
    ],
)
def test_the_read_limit_reported_to_spark_is_one_of_the_configured_limits(box, options, limit):
    assert make(box.create(), **options).getDefaultReadLimit() == limit


def test_all_limits_apply_unless_spark_requests_everything(box, reader):
    box.send(*["x" * 1_000] * 50, queue=0)
    limited = make(
        box, maxOffsetsPerTrigger="20", maxBytesPerTrigger="5500", startingOffsets="earliest"
    )
    start = limited.initialOffset()
    offsets = limited.latestOffset(start, ReadMaxRows(20))["offsets"]
    assert offsets == {"t": {"broker-a": {"0": 4, "1": 0}}}
    everything = limited.latestOffset(start, ALL)["offsets"]
    assert everything == {"t": {"broker-a": {"0": 50, "1": 0}}}


@pytest.fixture
def clocked(box):
    """A reader that waits for three messages or a minute, and its clock."""
    clock = FileClock(box.path)
    clock.set(1_700_000_000_000)
    box.create(queues=1)
    options = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "1m"}
    yield make(box, startingOffsets="earliest", maxBytesPerTrigger="none", **options), clock
    forget(box.path)


def test_messages_are_delayed_until_there_are_enough_or_the_delay_has_passed(box, clocked):
    reader, clock = clocked
    limit = reader.getDefaultReadLimit()
    box.send("first", queue=0)
    at = through_spark(reader.latestOffset(reader.initialOffset(), limit))
    for _ in range(2):
        box.send("x", queue=0)
        assert reader.latestOffset(at, limit) is at
    clock.advance(59_999)
    assert reader.latestOffset(at, limit) is at
    clock.advance(1)
    later = through_spark(reader.latestOffset(at, limit))
    assert later["offsets"] == {"t": {"broker-a": {"0": 3}}}
    box.send("x", "y", "z", queue=0)
    assert reader.latestOffset(later, limit)["offsets"] == {"t": {"broker-a": {"0": 6}}}


def test_delayed_messages_cost_an_idle_query_nothing(box, clocked, monkeypatch):
    reader, _ = clocked
    limit = reader.getDefaultReadLimit()
    box.send("first", queue=0)
    at = through_spark(reader.latestOffset(reader.initialOffset(), limit))
    box.send("x", queue=0)
    reader.latestOffset(at, limit)
    monkeypatch.setattr("pyrocket.Store.offsets", lambda *_: pytest.fail("asked for offsets"))
    assert reader.latestOffset(at, limit) is at


def test_available_now_and_once_do_not_wait_for_messages(box, clocked):
    reader, _ = clocked
    limit = reader.getDefaultReadLimit()
    box.send("first", queue=0)
    at = through_spark(reader.latestOffset(reader.initialOffset(), limit))
    box.send("x", queue=0)
    assert reader.latestOffset(at, ALL) != at
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(at, limit) != at


def test_available_now_ends_at_the_offsets_of_its_start(box, reader):
    box.send("a", "b", "c", queue=0)
    assert isinstance(reader, SupportsTriggerAvailableNow)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    box.send("d", queue=0)
    box.grow(queues=5)
    box.send("e", queue=4)
    end = through_spark(reader.latestOffset(start, ALL))
    assert end["offsets"] == {"t": {"broker-a": {"0": 3, "1": 0, "2": 0, "3": 0, "4": 0}}}
    assert reader.latestOffset(end, ALL) is end
    latest = reader.reportLatestOffset()["offsets"]["t"]["broker-a"]
    assert (latest["0"], latest["4"]) == (4, 1)


def test_available_now_asks_a_broker_for_messages_appended_immediately_before(box):
    box.create(queues=1)
    with options_of("endpoint", box.path) as options:
        served = replace(box, address=options["endpoint"])
        start = None
        for _ in range(10):
            served.send("x")
            query = make(served, startingOffsets="earliest")
            query.prepareForTriggerAvailableNow()
            start = start or query.initialOffset()
            end = through_spark(query.latestOffset(start, ALL))
            assert end != start
            start = end


def test_partitions_are_the_same_for_the_same_offsets(box, reader):
    box.send("a", "b", queue=0)
    box.send("c", queue=1)
    start = through_spark(reader.initialOffset())
    end = through_spark(reader.latestOffset(start, ALL))
    planned = reader.partitions(start, end)
    box.send("d", "e", queue=0)
    assert make(box).partitions(start, end) == planned
    assert reader.partitions(end, end) == []


def test_sparks_commit_call_does_nothing(reader):
    before = reader.reportLatestOffset()
    assert reader.commit(reader.initialOffset()) is None
    assert reader.reportLatestOffset() == before


def test_a_reader_is_small_when_pickled_even_after_it_was_used(box, reader):
    pickled = pickle.dumps(make(box))
    assert len(pickled) < 4_000
    assert pickle.loads(pickled).getDefaultReadLimit() == ReadMaxBytes(256 << 20)


def test_stop_closes_the_store_and_may_be_called_twice(box, reader):
    reader.initialOffset()
    reader.stop()
    reader.stop()


def test_a_start_is_logged_with_the_number_of_messages_to_read(box, caplog):
    box.send(*map(str, range(7)))
    with caplog.at_level("INFO", "pyspark_pyrocket"):
        make(box).initialOffset()
        make(box, startingOffsets="earliest").initialOffset()
    latest, earliest = caplog.messages
    assert "starts at latest: 0 existing messages will be read, at most 256 MiB" in latest
    assert "starts at earliest: 7 existing messages will be read, at most 256 MiB" in earliest
