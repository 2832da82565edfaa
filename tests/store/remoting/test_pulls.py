"""Ranges that are read by many pulls: order, progress, faults, memory, and bytes that are wrong."""

import itertools
import time
import tracemalloc

import pytest
from pyrocket.base.credentials import Credentials
from pyrocket.errors import (
    OffsetOutOfRangeError,
    RecordDamagedError,
    TransportError,
    UnsupportedError,
)
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import decode_slices
from pyrocket.remoting import pulls
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.pulls import PullSettings, Window, windows
from pyrocket.remoting.reads import read_range
from pyrocket.remoting.records import record_fields
from pyrocket.values.message import MessageQueue, QueueRange
from support.rocketmq_cluster import rocketmq
from support.rocketmq_server import Fault, RefusedError
from support.stores import batch

MESSAGES = 1000
QUEUE = MessageQueue("t", "broker-a", 0)
BODIES = [b"body %d" % number for number in range(MESSAGES)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with rocketmq(tmp_path_factory.mktemp("rocketmq")) as cluster:
        (broker,) = cluster.brokers
        broker.store.topics.create("t", read_queues=2, write_queues=2)
        tags = ["ab"[number % 2] for number in range(MESSAGES)]
        broker.store.append_batch(batch(BODIES, 0, tags=tags), topic="t")
        yield cluster


@pytest.fixture
def broker(cluster):
    broker = cluster.brokers[0]
    yield broker
    broker.reset()


@pytest.fixture
def pool(broker):
    pool = ConnectionPool(broker.address, Credentials(), "broker broker-a")
    yield pool
    pool.close()


def read(pool, start=0, end=MESSAGES, *, tally=None, where=None, **settings):
    part, settings = QueueRange(QUEUE, start, end), PullSettings(**{"seconds": 5} | settings)
    slices = read_range(pool, part, settings, tally=tally, where=where or MessageFilter())
    return [body.as_py() for one in decode_slices(slices, ["body"]) for body in one["body"]]


@pytest.mark.parametrize("at_once", [3, 8, 32])
@pytest.mark.parametrize("in_flight", [1, 16])
def test_all_messages_are_read_in_order(broker, pool, at_once, in_flight):
    broker.pulled_at_once = at_once
    assert read(pool, in_flight=in_flight) == BODIES
    assert read(pool, 333, 334, in_flight=in_flight) == [BODIES[333]]


def test_answers_in_any_order_are_put_in_order(broker, pool):
    broker.delays = itertools.cycle([0.02, 0.0, 0.01, 0.03, 0.005])
    assert read(pool) == BODIES


def test_many_pulls_are_one_flight(broker, pool):
    broker.delay_s, flights = 0.02, {}
    for in_flight in (1, 8):
        before = broker.cluster.flights
        assert read(pool, in_flight=in_flight) == BODIES
        flights[in_flight] = broker.cluster.flights - before
    assert flights[1] == 32
    assert flights[8] <= 8


@pytest.mark.parametrize("tags", ["a", "b", "a || b", "z"])
def test_messages_with_tags_are_selected_once(pool, tags):
    where, tally = MessageFilter.parse(tags=tags), ScanTally()
    chosen = [BODIES[n] for n in range(10, 990) if "ab"[n % 2] in tags]
    assert read(pool, 10, 990, tags=tags, where=where, tally=tally) == chosen
    assert (tally.entries, tally.messages) == (980, len(chosen))
    assert read(pool, 10, 990, where=where) == chosen, "selected in this process"


def test_a_reader_resumes_where_the_connection_was_lost(broker, pool):
    found, at = [], 0

    def read_on():
        for one in read_range(pool, QueueRange(QUEUE, at, MESSAGES), PullSettings(), tally=tally):
            found.extend(body.as_py() for rows in one.decode(["body"]) for body in rows["body"])

    for cut_after in (3, 1, 10):
        tally = ScanTally()
        broker.faults += [Fault(RefusedError(2, "busy"), count=cut_after), Fault("cut")]
        with pytest.raises(TransportError) as caught:
            read_on()
        assert caught.value.repeat_is_safe
        at += tally.entries
        assert found == BODIES[:at]
    assert found + read(pool, at) == BODIES


@pytest.mark.parametrize("code", [2, 215])
def test_a_busy_broker_is_asked_again(broker, pool, code):
    broker.faults.append(Fault(RefusedError(code, "too many requests"), count=5))
    assert read(pool) == BODIES


def test_a_broker_that_stays_busy_is_an_error(broker, pool):
    broker.faults.append(Fault(RefusedError(215, "too many requests"), count=10**6))
    with pytest.raises(TransportError, match="too many requests") as caught:
        read(pool, seconds=0.2)
    assert caught.value.code == "PULL_STALLED"


def test_a_busy_broker_is_not_asked_all_the_time(broker, pool):
    """Only the first window is pulled again: the others wait for their turn."""
    broker.faults.append(Fault(RefusedError(2, "busy"), count=10**6))
    with pytest.raises(TransportError):
        read(pool, seconds=0.5)
    assert broker.codes().count(11) <= 16 + 10


def test_a_busy_broker_may_take_its_time_for_each_window(broker, pool, monkeypatch):
    """The time without progress is limited, not that of the whole range."""
    answered, asked = broker._answer_11, {}

    def answer(fields, request):
        place = fields["queueOffset"]
        asked[place] = asked.get(place, 0) + 1
        if asked[place] < 4:
            raise RefusedError(2, "busy")
        return answered(fields, request)

    monkeypatch.setattr(broker, "_answer_11", answer)
    began = time.monotonic()
    assert read(pool, 0, 6 * 32, in_flight=1, seconds=0.4) == BODIES[: 6 * 32]
    assert time.monotonic() - began > 0.4


def test_a_slave_that_is_behind_is_waited_for(broker):
    slave = broker.cluster.add_slave(broker)
    slave.hidden = 400
    pool = ConnectionPool(slave.address, Credentials(), "slave of broker-a")
    with pytest.raises(TransportError, match=r"slave of broker-a.*message 600") as caught:
        read(pool, seconds=0.3)
    assert caught.value.code == "PULL_STALLED"
    assert caught.value.repeat_is_safe
    slave.hidden = 0
    assert read(pool) == BODIES
    pool.close()


def test_a_range_that_the_queue_does_not_have_is_an_error(pool):
    with pytest.raises(OffsetOutOfRangeError, match=r"\[0, 1000\); 1200 was requested"):
        read(pool, 1200, 1300)


@pytest.mark.parametrize("in_flight", [1, 16])
def test_the_messages_before_an_error_are_read(broker, pool, in_flight):
    """A queue that has become shorter since the range was planned."""
    broker.hidden, tally = 100, ScanTally()
    parts = read_range(
        pool,
        QueueRange(QUEUE, 0, 1000),
        PullSettings(seconds=0.2, in_flight=in_flight),
        tally=tally,
    )
    found = [*next(parts).decode(["body"])]
    with pytest.raises(TransportError, match=r"message 900 .*\[0, 900\)"):
        next(parts)
    assert [body.as_py() for rows in found for body in rows["body"]] == BODIES[: tally.entries]
    assert tally.entries == 896, "the windows that are done"


def test_a_reader_that_stops_early_leaves_no_answers_behind(broker, pool):
    broker.delay_s = 0.01
    parts = windows(pool, QueueRange(QUEUE, 0, MESSAGES))
    next(parts)
    parts.close()
    assert read(pool, 500, 510) == BODIES[500:510]
    assert pool._unused


def test_other_calls_go_on_while_a_range_is_read(pool):
    parts = windows(pool, QueueRange(QUEUE, 0, MESSAGES))
    next(parts)
    assert read(pool, 5, 7) == BODIES[5:7]
    assert [window.start for window in parts] == list(range(32, MESSAGES, 32))


def test_large_messages_do_not_fill_the_memory(broker, pool, monkeypatch):
    monkeypatch.setattr(pulls, "_HELD_BYTES", 1 << 20)
    large = [bytes([number]) * 200_000 for number in range(150)]
    for number in range(0, 150, 10):
        broker.store.append_batch(batch(large[number : number + 10], 1), topic="t")
    part = QueueRange(QUEUE._replace(queue_id=1), 0, 150)
    tracemalloc.start()
    seen = 0
    for one in read_range(pool, part, PullSettings()):
        for rows in one.decode(["body"]):
            assert [body.as_py() for body in rows["body"]] == large[seen : seen + len(rows)]
            seen += len(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 150
    assert peak < 25 << 20, "the messages have 30 MB, an answer has up to 400 KB"


# Bytes that are wrong


@pytest.fixture
def window(pool):
    (window,) = windows(pool, QueueRange(QUEUE, 3, 6))
    window.records = [b"".join(window.records)]
    return window


def test_records_are_those_of_the_queue(window):
    fields = record_fields(QUEUE, [window])
    assert fields.queue_offset.tolist() == [3, 4, 5]
    assert (fields.physical_offset == fields.field("physical_offset")).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[:50],
        lambda data: data + b"\0" * 10,
        lambda data: b"\0" * len(data),
        lambda data: data[: len(data) // 3] * 3,
        lambda data: data[:20] + b"\x7f" + data[21:],
        lambda data: data[:84] + b"\x7f\xff\xff\xff" + data[88:],
        lambda data: data[:15] + b"\x09" + data[16:],
    ],
)
def test_bytes_that_are_no_records_of_the_queue_are_an_error(window, change):
    window.records = [change(window.records[0])]
    with pytest.raises(RecordDamagedError, match="broker-a has sent bytes") as caught:
        record_fields(QUEUE, [window])
    assert "slave" in caught.value.remedy


def test_records_of_another_topic_are_an_error(window):
    with pytest.raises(RecordDamagedError, match="not of topic 'u'"):
        record_fields(QUEUE._replace(topic="u"), [window])


def test_a_topic_of_batches_is_refused(window):
    data = window.records[0]
    window.records = [data[:39] + b"\xc0" + data[40:]]
    with pytest.raises(UnsupportedError, match=r"message 3 of topic 't'.*BatchCQ") as caught:
        record_fields(QUEUE, [window])
    assert caught.value.code == "UNSUPPORTED_RECORD"


def test_gaps_are_no_loss(window):
    """A compaction removes messages."""
    data = window.records[0]
    third = len(data) // 3
    window.records = [data[:third] + data[2 * third :]]
    assert record_fields(QUEUE, [window]).queue_offset.tolist() == [3, 5]


def test_windows_without_records_have_no_rows():
    assert len(record_fields(QUEUE, [Window(0, 32, 32), Window(32, 64, 64)])) == 0
