"""A sink of a cluster: order, retries, ids, and what is refused before anything is sent."""

import logging
import threading

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import Credentials, RocketMQCluster, RocketMQSink
from pyrocket.errors import (
    BrokerBusyError,
    MessageError,
    StorePermissionError,
    StoreUnavailableError,
    TopicNotFoundError,
    TransportError,
    UnsupportedError,
)
from pyrocket.formats.compression import COMPRESSED_FLAGS
from pyrocket.formats.hashes import queue_for_key
from pyrocket.remoting.batches import BATCH_BYTES
from pyrocket.values.message import SendStatus
from support.rocketmq_cluster import rocketmq
from support.rocketmq_frames import items_of
from support.rocketmq_server import Fault, RefusedError
from support.shares import share

A, B = "broker-a", "broker-b"
SENDS = {310, 320}
QUEUES = 2


@pytest.fixture(params=share(["5.5", "4.9"], 1))
def made(request, tmp_path):
    """Topic t with two queues at each of two brokers."""
    with rocketmq(tmp_path, version=request.param, brokers=(A, B)) as made:
        create(made, "t")
        yield made


def create(made, topic, **more):
    for broker in made.brokers:
        broker.store.topics.create(topic, **{"read_queues": QUEUES, "write_queues": QUEUES} | more)


@pytest.fixture
def sink_of(made):
    opened = []

    def open_sink(**settings):
        cluster = RocketMQCluster(made.addresses, Credentials())
        opened.append(cluster)
        return RocketMQSink(cluster, **{"seconds": 3} | settings)

    yield open_sink
    for cluster in opened:
        cluster.close()


def rows(bodies, **columns):
    return pa.record_batch({"body": pa.array(bodies, pa.binary())} | columns)


def numbered(count, **columns):
    return rows([b"m%d" % number for number in range(count)], **columns)


def stored(made, topic="t"):
    """Return (broker, queue id) → the messages of the queue."""
    return {
        (broker.name, queue): [*broker.store.messages(topic, queue, 0, end)]
        for broker in made.brokers
        for queue in range(QUEUES)
        if (end := broker.store.max_offset(topic, queue))
    }


def bodies(made, topic="t"):
    return {
        queue: [each.body for each in messages] for queue, messages in stored(made, topic).items()
    }


def all_of(made, topic="t"):
    return sorted(body for found in bodies(made, topic).values() for body in found)


def ids_of(made):
    return sorted((each.body, each.msg_id) for found in stored(made).values() for each in found)


def sends(made):
    return [one for broker in made.brokers for one in broker.requests if one.code in SENDS]


def test_rows_are_spread_over_the_queues_of_all_brokers(made, sink_of):
    result = sink_of().append(numbered(40), topic="t", first_queue=0)
    assert (result.rows, result.status) == (40, SendStatus.SEND_OK)
    found = bodies(made)
    assert [len(found[queue]) for queue in sorted(found)] == [10, 10, 10, 10]
    assert [body for queue in sorted(found) for body in found[queue]] == [
        b"m%d" % number for number in range(40)
    ]


def test_all_columns_are_stored(made, sink_of):
    columns = {
        "tags": pa.array(["a", None]),
        "keys": pa.array([["k1", "k2"], None], pa.list_(pa.string())),
        "shardingKey": pa.array(["s", "s"]),
        "flag": pa.array([7, None], pa.int32()),
        "properties": pa.array([[("own", "ä")], []], pa.map_(pa.string(), pa.string())),
    }
    sink_of().append(numbered(2, **columns), topic="t")
    ((where, (first, second)),) = stored(made).items()
    assert (first.body, first.tags, first.keys, first.flag) == (b"m0", "a", ("k1", "k2"), 7)
    assert first.properties["own"] == "ä"
    assert first.properties["__SHARDINGKEY"] == "s"
    assert (second.body, second.tags, second.keys, second.flag) == (b"m1", None, (), 0)
    at = queue_for_key("s", 2 * QUEUES)
    assert where == ([A, B][at // QUEUES], at % QUEUES)


def test_a_key_stays_in_one_queue_in_order_and_a_queue_id_counts_the_queues_of_all(made, sink_of):
    sink, keys = sink_of(), [f"k{number % 7}" for number in range(200)]
    for at in range(0, 200, 50):
        batch = numbered(200, shardingKey=pa.array(keys)).slice(at, 50)
        sink.append(batch, topic="t")
    for found in stored(made).values():
        of_key = {}
        for each in found:
            of_key.setdefault(each.properties["__SHARDINGKEY"], []).append(int(each.body[1:]))
        assert all(numbers == sorted(numbers) for numbers in of_key.values())
        assert all(len(numbers) >= 28 for numbers in of_key.values())
    create(made, "u")
    sink.append(numbered(2, queueId=pa.array([3, 0], pa.int32())), topic="u")
    assert bodies(made, "u") == {(B, 1): [b"m0"], (A, 0): [b"m1"]}
    with pytest.raises(MessageError, match="row 1 names queue 4"):
        sink.append(numbered(2, queueId=pa.array([0, 4], pa.int32())), topic="u")
    only = sink_of(broker=B)
    only.append(numbered(9), topic="u")
    assert {broker for broker, _ in bodies(made, "u")} == {A, B}
    assert sum(len(found) for (broker, _), found in bodies(made, "u").items() if broker == B) == 10


def test_queues_that_a_topic_has_lost_are_asked_for_again_after_an_error(made, sink_of):
    sink = sink_of(broker=A)
    sink.append(numbered(2, queueId=pa.array([0, 1])), topic="t")
    made.brokers[0].store.topics.update("t", write_queues=1)
    made.brokers[0].register()
    with pytest.raises(StoreUnavailableError, match="illegal"):
        sink.append(rows([b"lost"], queueId=pa.array([1])), topic="t")
    sink.append(numbered(8), topic="t")
    assert len(bodies(made)[A, 0]) == 9


def test_an_ordered_topic_has_the_queues_that_the_name_server_lists(made, sink_of):
    made.name_servers[0].orders["t"] = f"{B}:2;{A}:1"
    sink_of().append(numbered(3, queueId=pa.array([0, 1, 2])), topic="t")
    assert bodies(made) == {(B, 0): [b"m0"], (B, 1): [b"m1"], (A, 0): [b"m2"]}


def test_requests_have_at_most_512_kib_and_one_queue(made, sink_of):
    sizes = [1, 3 << 20, 4 << 20, *[100_000] * 20]
    batch = rows(list(map(np.random.default_rng(1).bytes, sizes)))
    keys = pa.array(["k"] * len(sizes))
    sink_of().append(batch.append_column("shardingKey", keys), topic="t")
    (found,) = bodies(made).values()
    assert [len(body) for body in found] == sizes
    requests = sends(made)
    assert [len([*items_of(one.body)]) for one in requests] == [1, 1, 1, 5, 5, 5, 5]
    assert all(len(one.body) <= BATCH_BYTES for one in requests[3:])


def test_a_batch_of_long_bodies_is_compressed(made, sink_of):
    noise = np.random.default_rng(1).bytes(5000)
    sink = sink_of()
    sink.append(rows([b"x" * 5000, b"y" * 9000], queueId=pa.array([0, 0])), topic="t")
    sink.append(rows([b"x" * 5000, b"short"], queueId=pa.array([0, 0])), topic="t")
    sink.append(rows([noise, b"x" * 5000], queueId=pa.array([0, 0])), topic="t")
    flags = [int(one.fields["f"]) for one in sends(made)]
    assert flags == [COMPRESSED_FLAGS, 0, 0]
    (found,) = bodies(made).values()
    assert found == [b"x" * 5000, b"y" * 9000, b"x" * 5000, b"short", noise, b"x" * 5000]


def test_delayed_rows_are_sent_one_by_one(made, sink_of):
    levels = pa.array([0, 3, None, 1], pa.int32())
    sink_of().append(numbered(4, delayLevel=levels, queueId=pa.array([0] * 4)), topic="t")
    assert bodies(made) == {(A, 0): [b"m0", b"m2"]}
    requests = sends(made)
    assert sorted(one.code for one in requests) == [310, 310, 320, 320]
    delayed = [one for one in requests if one.code == 310]
    assert ["DELAY\x013\x02" in one.fields["i"] for one in delayed] == [True, False]
    assert [bytes(one.body) for one in delayed] == [b"m1", b"m3"]


@pytest.mark.parametrize("made", ["4.9", "5.5"], indirect=True)
def test_rocketmq_4_has_no_due_times(made, sink_of):
    sink, batch = sink_of(), numbered(2, delay=pa.array(["1h", None]))
    if made.is_5:
        sink.append(batch, topic="t")
        assert all_of(made) == [b"m1"]
        return
    with pytest.raises(UnsupportedError, match="RocketMQ 4: no columns") as caught:
        sink.append(batch.slice(0, 0), topic="t")
    assert caught.value.code == "UNSUPPORTED_DELAY"


def test_the_brokers_of_the_topic_are_asked_for_due_times(made, sink_of):
    made.brokers[1].store.topics.create("only-b")
    made.version, sink = "5.5", sink_of()
    for _ in range(2):
        sink.append(numbered(1, delay=pa.array(["1h"])), topic="only-b")
    assert made.brokers[0].codes() == []
    assert made.brokers[1].codes().count(105) == 1


def test_rows_of_an_append_that_is_repeated_have_equal_ids(made, sink_of):
    for _ in range(2):
        sink_of().append(rows([b"same"] * 50), topic="t", repeat_id="q/1/0")
    found = ids_of(made)
    assert len({each for _, each in found}) == 50
    assert all(found.count(each) == 2 for each in found)
    assert all(len(each) == 48 and each[20:28] == "00000000" for _, each in found)


def test_other_content_and_other_tasks_have_other_ids(made, sink_of):
    def column(**given):
        return {name: pa.array([value]) for name, value in given.items()}

    variants = [
        ("q/1/0", rows([b"x"])),
        ("q/1/1", rows([b"x"])),
        ("q/2/0", rows([b"x"])),
        ("q/1/0", rows([b"y"])),
        ("q/1/0", rows([b"x"], **column(tags="t"))),
        ("q/1/0", rows([b"x"], **column(keys="t"))),
        ("q/1/0", rows([b"x"], **column(topic="t"))),
        ("q/1/0", rows([b"x"], **column(queueId=0))),
        ("", rows([b"x"])),
        ("", rows([b"x"])),
    ]
    for repeat_id, batch in variants:
        topic = None if "topic" in batch.schema.names else "t"
        sink_of().append(batch, topic=topic, repeat_id=repeat_id)
    assert len({each for _, each in ids_of(made)}) == len(variants)


@pytest.mark.parametrize("action", ["cut", "lose", "half"])
def test_a_lost_request_is_sent_again_with_the_same_ids(made, sink_of, action):
    made.brokers[0].faults.append(Fault(action, 320, 2))
    keys = pa.array([f"k{number}" for number in range(40)])
    sink_of().append(numbered(40, shardingKey=keys), topic="t")
    found = ids_of(made)
    assert sorted({body for body, _ in found}) == sorted(b"m%d" % number for number in range(40))
    assert len(set(found)) == 40
    assert (len(found) > 40) == (action != "cut")


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (2, "[REJECTREQUEST]system busy"),
        (215, "flow"),
        (14, "disk full"),
        (1, "broker busy, start"),
    ],
)
def test_a_busy_broker_gets_only_the_rows_that_need_it(made, sink_of, code, remark):
    made.brokers[0].faults.append(Fault(RefusedError(code, remark), 320, 3))
    keys = pa.array([f"k{number}" if number < 20 else None for number in range(40)])
    sink_of().append(numbered(40, shardingKey=keys), topic="t")
    assert len(all_of(made)) == 40
    made.brokers[0].faults.append(Fault(RefusedError(code, remark), 320, 1000))
    sink_of().append(numbered(8), topic="t")
    assert len(all_of(made)) == 48
    with pytest.raises(BrokerBusyError, match=remark.replace("[", r"\[")):
        sink_of(seconds=0.3, broker=A).append(numbered(1), topic="t")


def test_a_dead_broker_gets_its_rows_when_it_is_back(made, sink_of):
    sink, keys = sink_of(seconds=20), pa.array([f"k{number}" for number in range(50)])
    sink.append(numbered(50, shardingKey=keys), topic="t")
    before = bodies(made)
    made.brokers[0].kill()
    sink.append(numbered(20), topic="t")
    back = threading.Timer(1, made.brokers[0].start)
    back.start()
    sink.append(numbered(50, shardingKey=keys), topic="t")
    back.join()
    found = bodies(made)
    for queue in [(A, 0), (A, 1)]:
        assert found[queue] == before[queue] * 2
    assert sum(map(len, found.values())) == 120


def test_a_dead_broker_is_an_error_in_the_end(made, sink_of):
    sink = sink_of(seconds=0.5)
    sink.prepare("t")
    made.brokers[0].kill()
    with pytest.raises(TransportError, match=r"broker-a"):
        sink.append(numbered(1, queueId=pa.array([0])), topic="t")


def test_stored_with_a_doubtful_status_is_stored_and_logged_once(made, sink_of, caplog):
    made.brokers[0].faults.append(Fault(11, 320, 3))
    made.brokers[1].faults.append(Fault(10, 320, 3))
    sink = sink_of()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            result = sink.append(numbered(8), topic="t")
    assert result.status in (SendStatus.SLAVE_NOT_AVAILABLE, SendStatus.FLUSH_DISK_TIMEOUT)
    assert len(all_of(made)) == 24
    assert len([one for one in caplog.records if "are stored" in one.message]) == 1


def test_what_is_wrong_is_found_before_anything_is_sent(made, sink_of):
    sink, good = sink_of(), [b"x"] * 10
    with pytest.raises(MessageError, match=r"row 10 has a body of 4194305 bytes") as caught:
        sink.append(rows([*good, b"x" * (4 << 20) + b"x"]), topic="t")
    assert caught.value.code == "BODY_TOO_LARGE"
    long = pa.array([[("p", "x")]] * 10 + [[("p", "x" * 32767)]], pa.map_(pa.string(), pa.string()))
    topics = pa.array(["t", "u"] * 5 + ["u"])
    create(made, "u")
    with pytest.raises(MessageError, match=r"row 10 has .* bytes of properties"):
        sink.append(rows([*good, b"x"], properties=long, topic=topics))
    with pytest.raises(TopicNotFoundError, match=r"no topic 'none'.*mqadmin updateTopic"):
        sink.append(rows([b"x"] * 2, topic=pa.array(["t", "none"])))
    with pytest.raises(TopicNotFoundError, match=r"no topic 'tt'.*'t'"):
        sink.prepare("tt")
    assert sends(made) == []


def test_a_topic_that_is_closed_to_senders_is_refused(made, sink_of):
    create(made, "closed", perm=4)
    with pytest.raises(MessageError, match="no queue of the topic 'closed'") as caught:
        sink_of().prepare("closed")
    assert caught.value.code == "TOPIC_NOT_WRITABLE"
    made.brokers[0].store.topics.update("closed", perm=6)
    sink_of().append(numbered(8), topic="closed")
    assert {broker for broker, _ in bodies(made, "closed")} == {A}


def test_a_refusal_of_a_broker_is_named_and_not_repeated(made, sink_of):
    made.brokers[0].faults.append(Fault(RefusedError(16, "no right"), 320))
    with pytest.raises(StorePermissionError, match=r"no right.*PUB"):
        sink_of().append(numbered(40), topic="t")
    made.brokers[0].faults.append(Fault(RefusedError(13, "too large"), 320))
    with pytest.raises(StoreUnavailableError, match=r"too large.*Other rows") as caught:
        sink_of().append(numbered(1, queueId=pa.array([0])), topic="t")
    assert caught.value.code == "MESSAGE_ILLEGAL"


@pytest.mark.parametrize("refusal", [(1, "message body size exceeded"), (13, "illegal")])
def test_a_batch_that_is_too_long_for_a_broker_is_divided(made, sink_of, refusal):
    made.brokers[0].faults.append(Fault(RefusedError(*refusal), 320, 3))
    sink_of().append(numbered(41, queueId=pa.array([0] * 41)), topic="t")
    assert bodies(made) == {(A, 0): [b"m%d" % number for number in range(41)]}
    made.brokers[0].faults.append(Fault(RefusedError(*refusal), 320, 1000))
    with pytest.raises(StoreUnavailableError, match="maxMessageSize"):
        sink_of().append(numbered(41, queueId=pa.array([0] * 41)), topic="t")


def test_one_request_waits_for_an_answer_in_each_queue(made, sink_of):
    for broker in made.brokers:
        broker.delay_s = 0.02
    made.flights = 0
    big = rows([b"x" * (BATCH_BYTES - 1000)] * 12, queueId=pa.array([0, 1, 2, 3] * 3))
    sink_of().append(big, topic="t")
    assert made.flights >= 3
    assert len(sends(made)) == 12


def test_the_id_of_the_store_is_the_cluster(made, sink_of):
    assert sink_of(topics=("t",)).store_id == "rocketmq:DefaultCluster"
    assert sink_of(topics=("none",)).store_id == sink_of().store_id == "rocketmq:DefaultCluster"
    assert sink_of().retention is None
    assert sink_of().append(numbered(0), topic="t").rows == 0
