"""What is special about a cluster of RocketMQ: flights, what counts as lost, what is refused."""

import os
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from pyrocket import LookupRequest, Message, MessageQueue
from pyrocket.errors import DataLossError, OptionError, TopicNotFoundError, TransportError
from pyrocket.formats.message_keys import offset_message_id
from pyrocket.remoting import source
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from support.rocketmq_cluster import rocketmq
from support.shares import share
from support.transports import namesrv_target

SCHEMA = default_columns(kafka=False, headers=False, text=False)
QUEUES = 4


@pytest.fixture(params=share(["5.5", "4.9"], 1))
def made(request, tmp_path):
    with rocketmq(tmp_path, version=request.param, brokers=("broker-a", "broker-b")) as made:
        for broker in made.brokers:
            broker.store.topics.create("t", read_queues=QUEUES, write_queues=QUEUES)
        send(made)
        yield made
        namesrv_target(made).close_source()


def send(made, topic="t", queues=QUEUES):
    for broker in made.brokers:
        for queue in range(queues):
            broker.store.append(Message(topic=topic, body=b"x", queue_id=queue))


def options(made, **more):
    servers = ";".join(made.addresses)
    return {"namesrv": servers, "topic": "t", "startingOffsets": "earliest", **more}


def reader_of(made, **more):
    return DefaultSource(options(made, **more)).streamReader(SCHEMA)


def rows(reader, start, end):
    tasks = reader.partitions(start, end)
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))


def sources(made, *topics):
    return namesrv_target(made, *topics).open_source().by_broker()


@pytest.fixture(params=[1, 3])
def wide(request, tmp_path, monkeypatch):
    """Some brokers with 16 queues each; a busy machine may use what it has seen a little later."""
    monkeypatch.setattr(source, "IDLE_S", 60)
    names = [f"broker-{number}" for number in range(request.param)]
    with rocketmq(tmp_path, brokers=names) as made:
        for broker in made.brokers:
            broker.store.topics.create("t", read_queues=16, write_queues=16)
        send(made, queues=16)
        yield made
        namesrv_target(made).close_source()


def fewest_flights(made, reader, expected, prepare=lambda: None):
    """Plan micro-batches as Spark does until their flights are as few as expected.

    On a busy machine, calls that are made at the same time may not overlap.
    """
    servers, fewest = [*made.brokers, *made.name_servers], 99
    start = reader.latestOffset(reader.initialOffset(), None)
    for _ in range(20):
        send(made, queues=16)
        prepare()
        for server in servers:
            server.delay_s = 0.05
        made.flights = 0
        end = reader.latestOffset(start, None)
        reader.partitions(start, end)
        fewest = min(fewest, made.flights)
        for server in servers:
            server.reset()
        assert rows(reader, start, end) == 16 * len(made.brokers)
        start = end
        if fewest <= expected:
            break
    reader.stop()
    return fewest


def test_a_micro_batch_waits_twice_for_all_brokers(wide):
    assert fewest_flights(wide, reader_of(wide), 2) == 2


def test_an_old_route_is_one_flight_more(wide):
    cluster = namesrv_target(wide).cluster
    assert fewest_flights(wide, reader_of(wide), 3, lambda: cluster.forget_topic("t")) == 3


def test_a_commit_to_a_group_is_two_flights_more(wide):
    # There is at most one commit a second; the first one of a group in a topic takes longer.
    reader = reader_of(wide, commitToGroup="g")
    assert fewest_flights(wide, reader, 4, lambda: time.sleep(1)) == 4
    assert all(broker.store.groups.committed("g", "t") for broker in wide.brokers)


def test_an_idle_query_asks_ten_times_a_second(made):
    reader = reader_of(made)
    start = reader.latestOffset(reader.initialOffset(), None)
    start = reader.latestOffset(start, None)
    for broker in made.brokers:
        broker.reset()
    for _ in range(5):
        assert reader.latestOffset(start, None) == start
    assert [len(broker.requests) for broker in made.brokers] == [5, 5]
    reader.stop()


def test_an_idle_query_that_polls_every_200_ms(made):
    reader = reader_of(made)
    start = reader.latestOffset(reader.initialOffset(), None)
    start = reader.latestOffset(start, None)
    for server in (*made.brokers, *made.name_servers):
        server.reset()
    begin, polls = time.monotonic(), 0
    while time.monotonic() < begin + 2:
        polls += 1
        assert reader.latestOffset(start, None) == start
        time.sleep(max(begin + 0.2 * polls - time.monotonic(), 0))
    seconds = time.monotonic() - begin
    for server in (*made.brokers, *made.name_servers):
        assert len(server.requests) <= 6 * seconds
    reader.stop()


def test_a_dead_broker_and_an_empty_name_server_are_no_loss(made):
    reader = reader_of(made)
    start = reader.latestOffset(reader.initialOffset(), None)
    reader.stop()
    made.brokers[1].kill()
    again = reader_of(made, **{"endpoint.timeout": "1s"})
    with pytest.raises(TransportError, match=r"no broker broker-b.*removedBrokers"):
        again.latestOffset(start, None)
    again.stop()
    made.name_servers[0].forget()
    again = reader_of(made, **{"endpoint.timeout": "1s"})
    with pytest.raises(TransportError, match="no broker"):
        again.latestOffset(start, None)
    again.stop()
    made.brokers[0].register()
    made.brokers[1].start()
    send(made)
    again = reader_of(made)
    assert rows(again, start, again.latestOffset(start, None)) == 2 * QUEUES
    again.stop()


def test_a_topic_that_its_brokers_no_longer_have_was_deleted(made):
    reader = reader_of(made)
    start = reader.latestOffset(reader.initialOffset(), None)
    for broker in made.brokers:
        broker.store.topics.delete("t")
    with pytest.raises(DataLossError, match="TOPIC_DELETED"):
        reader.latestOffset(start, None)
    reader.stop()


def test_a_plan_of_fewer_topics_after_a_look_at_more(made):
    for broker in made.brokers:
        broker.store.topics.create("u", read_queues=1, write_queues=1)
    source = sources(made, "t")["broker-a"]
    assert {topic.name for topic in source.plan(["t", "u"]).topics} == {"t", "u"}
    source.version()
    plan = source.plan(["t"])
    assert [topic.name for topic in plan.topics] == ["t"]
    assert {queue.topic for queue in plan.bounds} == {"t"}


def test_a_mark_that_the_log_has_lost(made):
    source = sources(made, "t")["broker-a"]
    mark = source.mark({queue: has.maximum for queue, has in source.bounds(["t"]).items()})
    assert source.holds(mark) is True
    later = type(mark)(mark.log_offset + 10_000, mark.store_timestamp, mark.header_crc)
    assert source.holds(later) is False
    expired = type(mark)(-1, mark.store_timestamp, mark.header_crc)
    assert source.holds(expired) is None


def test_queues_that_can_only_be_read_are_read(made):
    for broker in made.brokers:
        broker.store.topics.update("t", write_queues=1)
    found = sources(made, "t")["broker-a"].bounds(["t"])
    assert [(q.queue_id, has.maximum) for q, has in found.items()] == [(n, 1) for n in range(4)]


def test_an_offset_by_time_is_exact(made):
    broker = made.brokers[0]
    for _ in range(40):
        broker.store.append(Message(topic="t", body=b"x", queue_id=0))
    source = sources(made, "t")["broker-a"]
    (queue, has), *_ = source.bounds(["t"]).items()
    times = [broker._stored_at("t", 0, at) for at in range(has.maximum)]
    for time_ms in {times[0], times[20], times[-1]}:
        assert source.offsets_at({queue: time_ms}) == {queue: times.index(time_ms)}
    assert source.offsets_at({queue: times[-1] + 1}) == {queue: has.maximum}


def test_a_pattern_reads_topics_of_users(made):
    for broker in made.brokers:
        broker.store.topics.create("u", read_queues=QUEUES, write_queues=QUEUES)
    send(made, "u")
    given = options(made, subscribePattern=".*")
    del given["topic"]
    tasks = DefaultSource(given).reader(SCHEMA).partitions()
    assert {each.queue.topic for task in tasks for each in task.work.ranges} == {"t", "u"}


@pytest.mark.parametrize(
    ("option", "value"),
    [("view", "scheduled"), ("badRecordsTopic", "bad")],
)
def test_what_a_cluster_cannot_give_is_refused(made, option, value):
    more = {"valueFormat": "json", "valueSchema": "a INT"} if option == "badRecordsTopic" else {}
    given = {"namesrv": made.addresses[0], "topic": "t", option: value, **more}
    with pytest.raises(OptionError, match=f"'{option}' is not supported") as caught:
        DefaultSource(given).reader(SCHEMA)
    assert caught.value.code == "OPTION_UNSUPPORTED"


def test_a_broker_is_reached_at_a_given_address(made):
    broker = made.brokers[0]
    address, broker.registered_as = broker.address, "192.0.2.1:1"
    given = options(made, brokerAddresses=f"broker-a={address}")
    assert len(DefaultSource(given).reader(SCHEMA).partitions()) == 2


def test_a_query_can_wait_for_its_topic(made):
    reader = reader_of(made, topic="later", missingTopic="wait")
    start = reader.initialOffset()
    assert reader.latestOffset(start, None) == start
    for broker in made.brokers:
        broker.store.topics.create("later", read_queues=QUEUES, write_queues=QUEUES)
    send(made, "later")
    assert rows(reader, start, reader.latestOffset(start, None)) == 2 * QUEUES
    reader.stop()
    with pytest.raises(TopicNotFoundError, match=r"no topic 'late'.*'later'"):
        DefaultSource(options(made, topic="late")).reader(SCHEMA).partitions()


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_queue_that_was_filled_again_is_a_loss(made, policy):
    """Nothing but the places of its messages tells that they are others."""
    reader = reader_of(made)
    start = reader.latestOffset(reader.initialOffset(), None)
    reader.stop()
    time.sleep(0.01)
    for _ in range(3):
        send(made)
    # A store of pyrocket would not use the offsets again: the query claims to have read 3 messages.
    for queues in start["offsets"]["t"].values():
        queues.update(dict.fromkeys(queues, 3))
    again = reader_of(made, onDataLoss=policy)
    if policy == "fail":
        with pytest.raises(DataLossError, match="LOG_TRUNCATED"):
            again.latestOffset(start, None)
    else:
        assert rows(again, start, again.latestOffset(start, None)) == 3 * 2 * QUEUES
    again.stop()


def test_a_queue_that_has_grown_was_not_filled_again(made):
    reader = reader_of(made)
    start = reader.latestOffset(reader.initialOffset(), None)
    reader.stop()
    for _ in range(3):
        send(made)
    again = reader_of(made)
    assert rows(again, start, again.latestOffset(start, None)) == 3 * 2 * QUEUES
    again.stop()


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_task_whose_route_is_older_than_the_plan_reads_new_queues(made, policy):
    """Each process has its own routes, which it uses for 30 s."""
    driver = reader_of(made, onDataLoss=policy)
    start = driver.latestOffset(driver.initialOffset(), None)
    for broker in made.brokers:
        broker.store.topics.update("t", read_queues=QUEUES + 1, write_queues=QUEUES + 1)
        broker.store.append(Message(topic="t", body=b"x", queue_id=QUEUES))
    cluster = namesrv_target(made).cluster
    cluster.routes(["t"], 5, fresh=True)
    end = driver.latestOffset(start, None)
    tasks = driver.partitions(start, end)
    cluster._routes["t"] = narrow(cluster._routes["t"])
    assert sum(batch.num_rows for task in tasks for batch in driver.read(task)) == 2


def narrow(route):
    """Return a route as it was before the topic was expanded."""
    queues = route.queues.items()
    one = {name: replace(has, read_queues=QUEUES, write_queues=QUEUES) for name, has in queues}
    return replace(route, queues=one)


def test_a_query_waits_for_brokers_that_register_again_one_by_one(made, monkeypatch):
    """A name server that was restarted knows them after up to 30 s."""
    reader = reader_of(made)
    start = reader.latestOffset(reader.initialOffset(), None)
    first, second = made.brokers
    for server in made.name_servers:
        server.forget()
    first.register()
    namesrv_target(made).cluster._old_at.clear()
    later = threading.Timer(1, second.register)
    later.start()
    assert reader.latestOffset(start, None) == start
    later.join()


def test_a_mark_is_that_of_the_newest_message_also_among_large_ones(made):
    """A broker sends at most 256 KiB at once. Old messages that expire are no loss."""
    broker = made.brokers[0]
    for number in range(20):
        body = b"%02d" % number + os.urandom(100_000)
        broker.store.append(Message(topic="t", body=body, queue_id=0))
    reader = reader_of(made)
    start = reader.latestOffset(reader.initialOffset(), None)
    reader.stop()
    broker.expired = 18
    again = reader_of(made)
    assert again.latestOffset(start, None) == start
    one, place = sources(made, "t")["broker-a"], MessageQueue("t", "broker-a", 0)
    last = broker.store._engine.reader.log_offsets_at("t", 0, np.array([20]))
    assert one.mark({place: 21}).log_offset == last[0]


def test_a_place_without_a_record_is_none_also_if_the_answer_is_too_long(made, monkeypatch):
    """A broker takes the bytes there for a size."""
    one = sources(made, "t")["broker-a"]
    broker = next(each for each in made.brokers if each.name == "broker-a")
    mark = one.mark({MessageQueue("t", "broker-a", 0): 1})
    monkeypatch.setattr(broker, "_answer_33", lambda *_: (0, None, bytes(20 << 20), None))
    assert one.holds(mark) is False
    request = LookupRequest(topics=("t",), ids=(offset_message_id(bytes(4), 1, 7),))
    assert one.locate(request).locations == ()


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_topic_that_was_created_again_and_is_still_shorter_is_read_from_its_start(made, policy):
    """Offsets begin at 0 again, and the log still has the messages of the earlier topic."""
    reader = reader_of(made, onDataLoss=policy)
    start = reader.latestOffset(reader.initialOffset(), None)
    start["offsets"]["t"]["broker-a"]["0"] = 50
    time.sleep(0.01)
    broker = next(each for each in made.brokers if each.name == "broker-a")
    for _ in range(9):
        broker.store.append(Message(topic="t", body=b"new", queue_id=0))
    if policy == "fail":
        with pytest.raises(DataLossError, match="LOG_TRUNCATED"):
            reader.latestOffset(start, None)
        return
    end = reader.latestOffset(start, None)
    assert end["offsets"]["t"]["broker-a"]["0"] == 10
    assert rows(reader, start, end) == 9
