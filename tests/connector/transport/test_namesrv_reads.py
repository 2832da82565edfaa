"""Where and as whom the brokers of a cluster of RocketMQ are read, and look-ups of messages."""

import itertools
import socket
import time

import pytest
from pyrocket import LookupRequest, Message, MessageFilter, QueueRange
from pyrocket.errors import GroupNotFoundError, OffsetOutOfRangeError, TransportError
from pyrocket.filters.message_filter import ScanTally
from pyrocket.formats.message_keys import offset_message_id
from pyrocket.formats.record_slice import decode_slices
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from support.rocketmq_cluster import rocketmq
from support.rocketmq_server import Fault, RefusedError
from support.shares import share
from support.stores import batch
from support.transports import namesrv_target

SCHEMA = default_columns(kafka=False, headers=False, text=False)
BODIES = [b"%d" % number for number in range(2000)]


@pytest.fixture(params=share(["5.5", "4.9"], 1))
def made(request, tmp_path):
    with rocketmq(tmp_path, version=request.param) as made:
        (master,) = made.brokers
        master.store.topics.create("t", read_queues=2, write_queues=2)
        yield made
        namesrv_target(made).close_source()


@pytest.fixture
def master(made):
    made.brokers[0].store.append_batch(batch(BODIES, 0), topic="t")
    return made.brokers[0]


@pytest.fixture
def slave(made, master):
    return made.add_slave(master)


def read_by_task(made, **settings):
    """Return the bodies that a task reads, and the messages that it has examined."""
    target = namesrv_target(made, "t", **settings)
    (one,) = target.open_source().by_broker().values()
    ranges = [QueueRange(q, has.minimum, has.maximum) for q, has in one.bounds(["t"]).items()]
    tally = ScanTally()
    slices = one.target.open_source().slices([ranges[0]], tally=tally)
    return bodies(slices), tally.entries


def bodies(slices):
    return [body.as_py() for part in decode_slices(slices, ["body"]) for body in part["body"]]


# Slaves


def test_a_task_goes_on_at_the_slave_that_the_master_suggests(made, master, slave):
    master.suggested_id = 1
    assert read_by_task(made) == (BODIES, 2000)
    at_master, at_slave = master.codes().count(11), slave.codes().count(11)
    assert 0 < at_master < at_slave
    master.suggested_id = 0
    assert read_by_task(made) == (BODIES, 2000)
    assert slave.codes().count(11) == at_slave, "the slave has suggested the master"


def test_a_suggestion_without_a_live_slave_is_ignored(made, master):
    master.suggested_id = 1
    assert read_by_task(made) == (BODIES, 2000)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_planned_range_is_read_from_a_slave_without_the_master(made, master, slave, is_known):
    one = namesrv_target(made, "t", timeout_ms=8000).open_source().by_broker()["broker-a"]
    queue = next(iter(one.bounds(["t"])))
    master.kill()
    if is_known:  # Name servers notice after up to two minutes that a machine is gone.
        master.register()
    assert bodies(one.slices([QueueRange(queue, 0, 2000)])) == BODIES
    joined = one.joined_slice([QueueRange(queue, 5, 9)])
    assert joined.decode_in_order(("body",)).column(0).to_pylist() == BODIES[5:9]
    with pytest.raises(TransportError):
        one.within(0.5).bounds(["t"])


def test_a_slave_that_is_behind_is_awaited(made, master, slave):
    one = namesrv_target(made, "t", timeout_ms=1000).open_source().by_broker()["broker-a"]
    queue = next(iter(one.bounds(["t"])))
    master.kill()
    slave.hidden = 100
    tally = ScanTally()
    with pytest.raises(TransportError) as caught:
        bodies(one.slices([QueueRange(queue, 0, 2000)], tally=tally))
    assert caught.value.repeat_is_safe
    assert 1800 <= tally.entries <= 1900
    slave.hidden = 0
    assert bodies(one.slices([QueueRange(queue, 1900, 2000)])) == BODIES[1900:]


def test_a_slave_that_does_not_have_the_topic_yet_is_awaited(made, master, slave):
    target = namesrv_target(made, "t", timeout_ms=1500)
    one = target.open_source().by_broker()["broker-a"]
    ranges = [QueueRange(next(iter(one.bounds(["t"]))), 0, 2000)]
    master.kill()
    lacking = RefusedError(17, "topic[t] not exist")
    slave.faults.append(Fault(lacking, 11, 2))
    assert bodies(one.slices(ranges)) == BODIES
    slave.faults.append(Fault(lacking, 11, 10**6))
    with pytest.raises(TransportError, match=r"slave 1 of the broker broker-a.*copies the topics"):
        bodies(one.slices(ranges))


def test_a_suggested_slave_that_is_behind_is_left_for_the_master(made, master, slave):
    slave.hidden, master.suggested_id = 1000, 1
    one = namesrv_target(made, "t", timeout_ms=500).open_source().by_broker()["broker-a"]
    queue = next(iter(one.bounds(["t"])))
    slices = one.slices([QueueRange(queue, 0, 2000)])
    found = bodies(itertools.islice(slices, 1))
    master.suggested_id = 0
    assert found + bodies(slices) == BODIES


def test_small_ranges_whose_messages_have_expired_are_read_alone(made, master):
    one = namesrv_target(made, "t").open_source().by_broker()["broker-a"]
    queue, tally = next(iter(one.bounds(["t"]))), ScanTally()
    master.expired = 10
    assert one.joined_slice([QueueRange(queue, 5, 20)], tally=tally) is None
    assert tally == ScanTally()
    with pytest.raises(OffsetOutOfRangeError, match=r"\[10, 2000\); \[5, 20\) was requested"):
        bodies(one.slices([QueueRange(queue, 5, 20)]))


def test_a_slave_that_was_added_later_is_read(made, master):
    target = namesrv_target(made, "t")
    assert read_by_task(made)[0] == BODIES
    slave = made.add_slave(master)
    master.suggested_id = 1
    target.cluster.routes(["t"], 5, fresh=True)  # As after half a minute.
    assert read_by_task(made)[0] == BODIES
    assert 11 in slave.codes()


# Groups


def pulling_groups(broker):
    return {each.fields["consumerGroup"] for each in broker.requests if each.code == 11}


def test_messages_are_pulled_in_the_name_of_the_group(made, master):
    given = {"namesrv": made.addresses[0], "topic": "t", "startingTimestamp": "-1h"}
    reader = DefaultSource({**given, "commitToGroup": "g"}).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    for task in reader.partitions(start, end):
        assert sum(part.num_rows for part in reader.read(task)) == 2000
    reader.stop()
    assert pulling_groups(master) == {"g"}
    master.reset()
    batches = DefaultSource(given).reader(SCHEMA)
    (task,) = batches.partitions()
    assert sum(part.num_rows for part in batches.read(task)) == 2000
    assert pulling_groups(master) == {"TOOLS_CONSUMER"}


def test_a_group_that_is_missing_is_named(made, master):
    given = {"namesrv": made.addresses[0], "topic": "t", "group": "none"}
    reader = DefaultSource({**given, "startingOffsets": "committed"}).reader(SCHEMA)
    with pytest.raises(GroupNotFoundError, match=r"'none'.*mqadmin updateSubGroup"):
        reader.partitions()


# Look-ups


def send(made, keys, queue=0, **more):
    return made.brokers[0].store.append(
        Message(topic="t", body=keys.encode(), keys=keys.split(), queue_id=queue, **more)
    )


def rows_of(made, **more):
    reader = DefaultSource({"namesrv": made.addresses[0], "topic": "t", **more}).reader(SCHEMA)
    return [
        row["body"].decode()
        for task in reader.partitions()
        for part in reader.read(task)
        for row in part.to_pylist()
    ]


def test_messages_are_found_by_key_and_by_id(made):
    first = send(made, "a b")
    send(made, "b", queue=1, properties={"color": "red"})
    send(made, "c")
    assert rows_of(made, keys="b") == ["a b", "b"]
    assert rows_of(made, keys="b", sql="color = 'red'") == ["b"]
    assert rows_of(made, keys="a,c,nothing") == ["a b", "c"]
    assert rows_of(made, keys="b", startingOffsets='{"t":{"0":1,"1":0}}') == ["b"]
    assert rows_of(made, msgId=first.msg_id) == ["a b"]
    assert rows_of(made, msgId="b") == [], "a key is no id"
    (stored,) = made.brokers[0].store.messages("t", 0, 1, 2)
    host, _, port = stored.store_host.rpartition(":")
    offset_id = offset_message_id(socket.inet_aton(host), int(port), stored.physical_offset)
    assert rows_of(made, msgId=offset_id.lower()) == ["c"]
    elsewhere = offset_message_id(bytes([10, 0, 0, 1]), int(port), stored.physical_offset)
    assert rows_of(made, msgId=elsewhere) == [], "another broker has stored the message"


def test_a_message_that_has_expired_since_the_look_up(made):
    send(made, "k")
    source = namesrv_target(made, "t").open_source().by_broker()["broker-a"]
    (places,) = source.locate(LookupRequest(topics=["t"], keys=["k"])).locations
    assert bodies(source.slices_at(places, where=MessageFilter.parse(tags="z"))) == []
    made.brokers[0].hidden = 1
    with pytest.raises(OffsetOutOfRangeError, match="no longer has the message 0"):
        bodies(source.slices_at(places))


def test_a_slave_that_lacks_the_messages_is_left_at_once(made, master, slave, monkeypatch):
    """It was added later, and suggests the master, which suggests the slave."""
    real, least = slave._answer_11, "1900"

    def lacking(fields, request):
        if (at := fields["queueOffset"]) and int(at) >= int(least):
            return real(fields, request)
        found = {"nextBeginOffset": at, "minOffset": least, "maxOffset": "2000"}
        return 20, {**found, "suggestWhichBrokerId": "0"}, b"", "OFFSET_TOO_SMALL"

    monkeypatch.setattr(slave, "_answer_11", lacking)
    master.suggested_id = 1
    began = time.monotonic()
    assert read_by_task(made) == (BODIES, 2000)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("code", [1, 26, 29])
def test_a_slave_that_does_not_have_a_queue_or_group_yet_is_left_for_the_master(
    made, master, slave, code
):
    master.suggested_id = 1
    slave.faults.append(Fault(RefusedError(code, "not there yet"), 11, 1))
    assert read_by_task(made) == (BODIES, 2000)
