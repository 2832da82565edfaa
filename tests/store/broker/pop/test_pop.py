"""Groups receive messages, ack them, and receive them again after their invisible time."""

import pytest
from pyrocket import StoreConfig
from pyrocket.errors import GroupNotFoundError, StorePermissionError, TopicNotFoundError
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.formats.compression import deflate
from pyrocket.services import consumption
from support.pops import acked, append_compressed, attempts, bodies, handles, popped, sent
from support.stores import message


@pytest.fixture
def store(open_store):
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    return store


@pytest.fixture
def pop(store):
    return popped(store)


def committed(store, pop, group="g", topic="t"):
    pop.snapshot()
    return store.groups.committed(group, topic)


def test_messages_are_delivered_once_and_acked(store, pop):
    sent(store, 5)
    first, second = pop.receive("g", "t", max_messages=3), pop.receive("g", "t")
    assert bodies(first) == [b"0", b"1", b"2"]
    assert bodies(second) == [b"3", b"4"]
    assert bodies(pop.receive("g", "t")) == []
    assert acked(pop, second) == (True, True)
    assert committed(store, pop) == {0: 0}
    assert all(acked(pop, first))
    assert committed(store, pop) == {0: 5}


def test_a_message_is_visible_again_after_its_invisible_time(store, pop, clock):
    sent(store, 2)
    first = pop.receive("g", "t", invisible_ms=10_000)
    clock.now += 9_999
    assert bodies(pop.receive("g", "t")) == []
    clock.now += 1
    again = pop.receive("g", "t")
    assert attempts(again) == {b"0": 2, b"1": 2}
    assert acked(pop, first) == (False, False)
    assert acked(pop, again) == (True, True)
    assert acked(pop, again) == (False, False)


def test_changing_the_invisible_time_returns_a_new_handle(store, pop, clock):
    sent(store, 1)
    (one,) = pop.receive("g", "t", invisible_ms=10_000).messages
    changed = pop.change_invisible("g", "t", one.handle, 60_000)
    assert pop.change_invisible("g", "t", one.handle, 0).handle is None
    clock.now += 59_999
    assert bodies(pop.receive("g", "t")) == []
    pop.change_invisible("g", "t", changed.handle, 0)
    assert attempts(pop.receive("g", "t")) == {b"0": 2}


def test_extending_the_invisible_time_keeps_the_handles(store, pop, clock):
    sent(store, 2)
    received = pop.receive("g", "t", invisible_ms=10_000)
    assert pop.extend("g", "t", handles(received), 60_000).valid == (True, True)
    clock.now += 30_000
    assert bodies(pop.receive("g", "t")) == []
    assert acked(pop, received) == (True, True)


@pytest.mark.parametrize("handle", ["", "x", "ä", "A" * 51, "A" * 2000])
def test_a_handle_without_a_valid_signature_is_invalid(pop, store, handle):
    sent(store, 1)
    pop.receive("g", "t")
    assert pop.ack("g", "t", [handle]).valid == (False,)
    assert pop.change_invisible("g", "t", handle, 0).handle is None


def test_rejected_calls_change_nothing(pop, store):
    topics = {*store.topics.all()}
    for group in ("g", "unknown"):
        assert pop.forward_to_dlq(group, "t", "garbage").valid == (False,)
        assert pop.ack(group, "t", ["garbage"]).valid == (False,)
        assert pop.extend(group, "t", ["garbage"], 0).valid == (False,)
        assert pop.change_invisible(group, "t", "garbage", 0).handle is None
        assert pop.in_flight(group) == 0
    for call in (pop.receive, pop.lag):
        with pytest.raises(GroupNotFoundError):
            call("unknown", "t")
    assert pop.lag("g", "t")["t", 0].lag == 0
    assert {*store.topics.all()} == topics
    assert not pop._states.all()


def test_receives_start_at_a_different_queue_each_time(store, pop):
    store.topics.update("t", read_queues=3, write_queues=3)
    for queue_id in range(3):
        sent(store, 2, first=10 * queue_id, queue_id=queue_id)
    assert [bodies(pop.receive("g", "t", max_messages=1))[0] for _ in range(3)] == [
        *(b"10", b"20", b"0")
    ]


def test_messages_that_a_filter_does_not_select_are_acked(store, pop):
    sent(store, 3, tags="A")
    sent(store, 1, first=3, tags="B")
    wanted = pop.receive("g", "t", where=MessageFilter.parse(tags="B"))
    assert bodies(wanted) == [b"3"]
    assert committed(store, pop) == {0: 3}
    assert bodies(pop.receive("g", "t")) == []


def test_missing_and_disabled_groups_and_missing_topics_are_rejected(store, pop):
    with pytest.raises(GroupNotFoundError):
        pop.receive("missing", "t")
    with pytest.raises(TopicNotFoundError):
        pop.receive("g", "nothing")
    store.groups.update("g", consume_enabled=False)
    with pytest.raises(StorePermissionError):
        pop.receive("g", "t")


def test_the_number_of_messages_in_flight_is_limited(store, clock):
    pop = popped(store, max_in_flight=3)
    sent(store, 5)
    assert len(bodies(pop.receive("g", "t", invisible_ms=10_000))) == 3
    assert bodies(pop.receive("g", "t")) == []
    clock.now += 10_000
    assert attempts(pop.receive("g", "t")) == {b"0": 2, b"1": 2, b"2": 2}


def test_a_sweep_returns_visible_messages_and_the_next_time(store, pop, clock):
    sent(store, 2)
    start = clock.now
    pop.receive("g", "t", max_messages=1, invisible_ms=10_000)
    pop.receive("g", "t", max_messages=1, invisible_ms=20_000)
    assert pop.sweep().next_ms == start + 10_000
    clock.now += 10_000
    swept = pop.sweep()
    assert [(one.group, one.topic) for one in swept.news] == [("g", "t")]
    assert swept.next_ms == start + 20_000
    assert pop.sweep().news == ()


def test_lag_includes_messages_in_flight(store, pop, clock):
    sent(store, 5)
    received = pop.receive("g", "t", max_messages=3)
    pop.ack("g", "t", handles(received)[1:2])
    clock.now += 7_000
    lag = pop.lag("g", "t")["t", 0]
    assert (lag.end, lag.committed, lag.in_flight, lag.ready) == (5, 0, 2, 2)
    assert lag.lag == 4
    assert lag.delay_ms == 7_000


def test_arrivals_are_the_queues_with_new_messages(store, pop):
    pop.arrivals()
    sent(store, 1)
    assert pop.arrivals() == [("t", 0)]
    assert pop.arrivals() == []
    pop.receive("g", "t")
    assert pop.arrivals() == []


def test_one_receive_examines_a_limited_number_of_messages(store):
    store.topics.update("t", read_queues=3, write_queues=3)
    pop = popped(store, max_scan=4)
    for queue_id in range(3):
        sent(store, 6, queue_id=queue_id, tags="A")
    sent(store, 1, first=6, queue_id=1, tags="B")
    wanted, found = MessageFilter.parse(tags="B"), []
    for _ in range(6):
        found.append(pop.receive("g", "t", where=wanted))
        if found[-1].messages:
            break
    assert bodies(found[-1]) == [b"6"]
    assert all(one.has_more for one in found[:-1])
    assert 3 <= len(found) <= 5
    while (last := pop.receive("g", "t", where=wanted)).has_more:
        assert not last.messages
    assert pop.lag("g", "t")["t", 2].ready == 0


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_the_bytes_of_one_receive_are_limited(open_store, clock, again, compressed):
    store = open_store(config=StoreConfig())
    store.topics.create("t", read_queues=1, write_queues=1)
    pop = popped(store, max_bytes=2500)
    for size in (1000, 1000, 1000, 5000, 10, 1000):
        if compressed:
            append_compressed(store, deflate(bytes(size)))
        else:
            store.append(message(bytes(size)))
    if again:
        while pop.receive("g", "t", invisible_ms=1000).messages:
            pass
        clock.now += 1000
    found = []
    while received := pop.receive("g", "t").messages:
        found.append([len(one.message.body) for one in received])
    assert found == [[1000, 1000, 1000], [5000], [10, 1000]]


def test_a_receive_reads_only_the_bodies_that_it_delivers(store, monkeypatch):
    pop = popped(store, max_bytes=2500)
    for _ in range(10):
        store.append(message(bytes(1000)))
    read, real = [], consumption.decode_record

    def counted(data):
        read.append(len(data))
        return real(data)

    monkeypatch.setattr(consumption, "decode_record", counted)
    assert len(pop.receive("g", "t").messages) == 3
    assert len(read) == 3


def test_a_new_message_does_not_overtake_after_the_filter_has_changed(store, pop, clock):
    store.groups.update("g", fifo=True)
    for number in range(3):
        sent(store, 1, first=number, sharding_key="A", tags="y" if number else "x")
    pop.receive("g", "t", max_messages=2, invisible_ms=1000)
    clock.now += 1000
    one = {"max_messages": 1, "where": MessageFilter.parse(tags="y")}
    received = pop.receive("g", "t", **one)
    assert (bodies(received), received.has_more) == ([], True)
    assert bodies(pop.receive("g", "t", **one)) == [b"1"]


@pytest.mark.parametrize("fifo", [False, True])
def test_a_body_that_does_not_inflate_does_not_block_other_messages(store, clock, fifo, caplog):
    pop = popped(store)
    store.groups.update("g", fifo=fifo)
    sent(store, 1)
    append_compressed(store, b"no zlib")
    sent(store, 1, first=1)
    received = pop.receive("g", "t")
    assert bodies(received) == [b"0", b"1"]
    assert "message 1 of queue 0 of t is damaged" in caplog.text
    assert pop.damaged == 1
    acked(pop, received)
    assert committed(store, pop) == {0: 3}


def test_empty_and_consumed_queues_are_not_read_again(store, pop, monkeypatch):
    """A FIFO group of official clients has a receive for each queue, which looks at all queues."""
    store.topics.create("many", read_queues=256, write_queues=256)
    first = sent(store, 3, topic="many", queue_id=7) + sent(store, 1, 3, topic="many", queue_id=9)
    read = []
    bounds = type(pop._storage).bounds
    monkeypatch.setattr(
        type(pop._storage), "bounds", lambda *args: read.append(args[1:]) or bounds(*args)
    )
    assert bodies(pop.receive("g", "many")) == first
    del read[:]
    for number in range(4, 7):
        body = sent(store, 1, number, topic="many", queue_id=9)
        assert bodies(pop.receive("g", "many")) == body
        assert bodies(pop.receive("g", "many")) == []
    assert {*read} == {("many", 9)}


def test_messages_that_another_process_appends_are_received(store, pop, open_store):
    assert bodies(pop.receive("g", "t")) == []
    sent(open_store(), 1)
    assert bodies(pop.receive("g", "t")) == [b"0"]
    sent(open_store(), 1, first=1)
    sent(store, 1, first=2)
    assert bodies(pop.receive("g", "t")) == [b"1", b"2"]
