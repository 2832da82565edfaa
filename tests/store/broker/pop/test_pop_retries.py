"""Retries, dead letters, and FIFO groups."""

from dataclasses import replace

import pytest
from pyrocket.broker.pop import draw
from pyrocket.broker.pop.retries import retry_copy
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.formats.half_message import change_properties
from pyrocket.formats.properties import TRACE_CONTEXT
from pyrocket.store import consumption_of
from pyrocket.values.admin import Backoff, GroupConfig
from support.pops import acked, attempts, bodies, handles, popped, sent
from support.stores import SMALL, log_files, message, overwrite

RETRY, DLQ = "%RETRY%g", "%DLQ%g"


@pytest.fixture
def store(open_store):
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    return store


def fail(pop, clock, times, topic="t"):
    """Receive messages repeatedly until they time out; return the attempts of each receive."""
    seen = []
    for _ in range(times):
        seen.append(attempts(pop.receive("g", topic, invisible_ms=10_000)))
        clock.now += 10_000
        pop.sweep()
    return seen


def test_later_attempts_are_messages_of_the_retry_topic(store, clock):
    pop = popped(store, first_attempts=2)
    sent(store, 1, tags="A", properties={"p": "q"})
    assert fail(pop, clock, 2) == [{b"0": 1}, {b"0": 2}]
    pop.snapshot()
    assert store.groups.committed("g", "t") == {0: 1}
    assert bodies(pop.receive("g", "t")) == []
    # The delay after the second delivery is 30 s, of which 10 s have passed: 20 s need level 4.
    clock.now += 30_000
    store.deliver_due()
    (copy,) = store.read(RETRY, 0, 0)
    assert copy.reconsume_times == 2
    assert copy.properties["RETRY_TOPIC"] == "t"
    assert copy.properties["DELAY"] == "4"
    assert copy.properties["WAIT"] == "false"
    assert copy.properties["p"] == "q"
    assert copy.tags == "A"
    received = pop.receive("g", "t")
    assert attempts(received) == {b"0": 3}
    (one,) = received.messages
    assert one.message.topic == "t"
    assert acked(pop, received) == (True,)
    assert bodies(pop.receive("g", "t")) == []


@pytest.fixture
def roomy(open_store):
    store = open_store(config=replace(SMALL, log_file_bytes=1 << 20))
    store.topics.create("t", read_queues=1, write_queues=1)
    return store


def long_properties(size):
    """Return a property that makes the properties of a record about `size` bytes long."""
    return {"p": "x" * (size - 2)}


@pytest.mark.parametrize("size", [32_000, 32_600, 32_650, 32_700])
def test_copies_of_messages_with_long_properties_fit(roomy, clock, size):
    """A message whose properties are too long for a retry becomes a dead letter."""
    store = roomy
    pop = popped(store, first_attempts=1)
    sent(store, 1, properties=long_properties(size))
    sent(store, 1, first=1)
    fail(pop, clock, 1)
    for _ in range(20):
        clock.now += 3_600_000
        store.deliver_due()
        pop.receive("g", "t", invisible_ms=10_000)
        clock.now += 10_000
        pop.sweep()
    dead = {one.body: one for one in store.messages(DLQ)}
    assert {*dead} == {b"0", b"1"}
    assert dead[b"0"].properties["p"] == "x" * (size - 2)
    assert dead[b"1"].properties["DLQ_ORIGIN_TOPIC"] == "t"
    pop.snapshot()
    assert store.groups.committed("g", "t") == {0: 2}


def test_a_copy_omits_a_trace_context_that_does_not_fit(roomy):
    sent(roomy, 1, properties=long_properties(30_000))
    (record,) = consumption_of(roomy).fetch("t", 0, 0, 1, MessageFilter(), 1).records
    trace = change_properties(record.properties, {TRACE_CONTEXT: "y" * 2_700})
    record = replace(record, properties=trace)
    storage, group = consumption_of(roomy), GroupConfig("g")
    copy = retry_copy(storage, record, group, attempts=1, delay_ms=0)
    text = bytes(copy.data).decode("latin-1")
    assert "RETRY_TOPIC\x01t\x02" in text
    assert "x" * 29_998 in text
    assert TRACE_CONTEXT not in text


def test_a_copy_too_large_for_a_log_file_does_not_stop_other_copies(store, clock, caplog):
    pop = popped(store, first_attempts=1)
    sent(store, 2)
    store.append(message(b"x" * 3_940, topic="t", queue_id=0))
    pop.receive("g", "t", invisible_ms=10_000)
    clock.now += 10_000
    assert pop.sweep().moved == 2
    assert "does not fit" in caplog.text
    assert pop.in_flight("g") == 1


def damage(store, offset):
    """Damage a message in the log."""
    (found,) = store.read("t", 0, offset, 1)
    (file,) = log_files(store.path)
    overwrite(file, b"\xff" * 8, found.physical_offset - int(file.name))


@pytest.mark.parametrize("when", ["before", "in flight"])
def test_a_damaged_message_is_counted_once_and_a_missing_message_is_not(roomy, clock, when):
    store, pop = roomy, popped(roomy, first_attempts=1)
    sent(store, 3, tags="a")
    if when == "before":
        damage(store, 1)
    received = len(pop.receive("g", "t", invisible_ms=10_000).messages)
    if when == "in flight":
        damage(store, 1)
    clock.now += 10_000
    assert received == (2 if when == "before" else 3)
    assert pop.sweep().moved == received
    assert pop.sweep().moved == 0
    assert pop.damaged == 1
    assert pop._storage.read("t", 0, 99) is None
    assert pop.damaged == 1


def test_a_message_that_cannot_be_copied_does_not_stop_other_messages(
    store, clock, caplog, monkeypatch
):
    pop = popped(store, first_attempts=1)
    sent(store, 3)
    read, refused = pop._storage.read, [b"1"]

    def failing(topic, queue_id, offset):
        record = read(topic, queue_id, offset)
        if record.body in refused:
            raise KeyError("a defect")
        return record

    monkeypatch.setattr(pop._storage, "read", failing)
    pop.receive("g", "t", invisible_ms=10_000)
    clock.now += 10_000
    assert pop.sweep().moved == 2
    assert pop.sweep().moved == 0
    (logged,) = [one for one in caplog.records if one.exc_info]
    assert logged.getMessage() == "moving message 1 of queue 0 of t failed and will be retried"
    refused.clear()
    clock.now += 60_000
    assert pop.sweep().moved == 1


def test_a_message_with_too_many_attempts_becomes_a_dead_letter(store, clock):
    pop = popped(store)
    store.groups.update("g", retry_max_times=1)
    sent(store, 1)
    assert fail(pop, clock, 2) == [{b"0": 1}, {b"0": 2}]
    (dead,) = store.read(DLQ, 0, 0)
    (first,) = store.read("t", 0, 0)
    assert (store.topics.get(DLQ).read_queues, store.topics.get(DLQ).write_queues) == (1, 1)
    assert dead.body == b"0"
    assert dead.reconsume_times == 2
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "t"
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == first.msg_id == dead.msg_id
    assert dead.properties["RETRY_TOPIC"] == "t"
    assert len(dead.properties["ORIGIN_MESSAGE_ID"]) == 32
    assert bodies(pop.receive("g", "t")) == []


def test_a_retry_with_too_many_attempts_becomes_a_dead_letter(store, clock):
    pop = popped(store, first_attempts=1)
    store.groups.update("g", retry_max_times=2, backoff=Backoff((1, 1, 1)))
    sent(store, 1)
    assert fail(pop, clock, 4) == [{b"0": 1}, {b"0": 2}, {b"0": 3}, {}]
    (dead,) = store.read(DLQ, 0, 0)
    (first,) = store.read("t", 0, 0)
    assert dead.reconsume_times == 3
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "t"
    assert store.offsets(RETRY)[0].maximum == 2
    assert dead.properties["ORIGIN_MESSAGE_ID"].endswith(f"{first.physical_offset:016X}")


def test_retries_are_received_with_their_original_topic(store, clock):
    pop = popped(store, first_attempts=1)
    store.groups.update("g", backoff=Backoff((1, 1, 1)))
    store.topics.create("u", read_queues=1, write_queues=1)
    sent(store, 1)
    sent(store, 1, first=1, topic="u")
    fail(pop, clock, 1)
    fail(pop, clock, 1, topic="u")
    assert attempts(pop.receive("g", "u")) == {b"1": 2}
    again = pop.receive("g", "t")
    assert attempts(again) == {b"0": 2}
    assert pop.ack("g", "u", handles(again)).valid == (False,)
    assert acked(pop, again) == (True,)


def test_retries_of_a_topic_that_is_not_consumed_do_not_stop_other_topics(store, clock):
    store.topics.create("u", read_queues=1, write_queues=1)
    pop = popped(store, first_attempts=1, max_in_flight=3)
    sent(store, 6, topic="u")
    for _ in range(2):
        assert len(pop.receive("g", "u", invisible_ms=1000, max_messages=3).messages) == 3
        clock.now += 1000
        assert pop.sweep().moved == 3
    clock.now += 7_200_000
    store.deliver_due()
    sent(store, 5, first=10)
    assert bodies(pop.receive("g", "t", invisible_ms=1000)) == [b"10", b"11", b"12"]
    assert bodies(pop.receive("g", "t")) == []
    assert pop.in_flight("g") == 6
    # When the topic is consumed again, its retries are received, and acks free their places.
    for _ in range(2):
        retries = pop.receive("g", "u")
        assert len(retries.messages) == 3
        acked(pop, retries, topic="u")
    assert pop.in_flight("g") == 3


def test_retries_of_an_unknown_topic_do_not_hide_other_retries(store, clock):
    """The topic is unknown if the record of the delivery was lost."""
    for topic in ("u", "v"):
        store.topics.create(topic, read_queues=1, write_queues=1)
    pop = popped(store, first_attempts=1)
    sent(store, 6, topic="u")
    sent(store, 2, first=10)
    for topic in ("u", "t"):
        pop.receive("g", topic, invisible_ms=1000)
        clock.now += 1000
        pop.sweep()
        clock.now += 7_200_000
        store.deliver_due()
    assert bodies(pop.receive("g", "v")) == []
    retries = pop._states.known("g").queues[RETRY, 0]
    assert len(retries.flight) == 8
    retries.flight.key[:] = 0
    found = [pop.receive("g", "t", max_messages=2) for _ in range(4)]
    assert [bodies(each) for each in found] == [[], [], [], [b"10", b"11"]]
    assert all(each.has_more for each in found[:-1])


def retried_by_another_group(store, clock, topic):
    """Group g_t retries a message; its retry topic has the same name as g's for topic t."""
    store.groups.create("g_t")
    pop = popped(store, first_attempts=1)
    sent(store, 1, first=5, topic=topic)
    assert bodies(pop.receive("g_t", topic, invisible_ms=1000)) == [b"5"]
    clock.now += 1000
    assert pop.sweep().moved == 1
    clock.now += 7_200_000
    store.deliver_due()
    return pop


@pytest.mark.parametrize("topic", ["t", "other"])
def test_retries_of_a_group_with_a_similar_name_are_not_received(store, clock, topic):
    store.topics.create("other", read_queues=1, write_queues=1)
    pop = retried_by_another_group(store, clock, topic)
    assert [one.attempt for one in pop.receive("g", "t").messages] == ([1] if topic == "t" else [])
    assert attempts(pop.receive("g_t", topic)) == {b"5": 2}


def test_a_message_that_is_forwarded_twice_has_one_dead_letter(store, clock):
    pop = popped(store)
    store.groups.update("g", fifo=True)
    sent(store, 2)
    one, two = handles(pop.receive("g", "t"))
    assert pop.forward_to_dlq("g", "t", one).valid == (True,)
    assert pop.forward_to_dlq("g", "t", one).valid == (True,)
    assert pop.forward_to_dlq("g", "t", "no").valid == (False,)
    assert [each.body for each in store.read(DLQ, 0, 0)] == [b"0"]
    pop.ack("g", "t", [two])
    pop.snapshot()
    assert store.groups.committed("g", "t") == {0: 2}


def test_dead_letters_can_be_received_like_other_messages(store, clock):
    pop = popped(store, first_attempts=1)
    store.groups.update("g", backoff=Backoff((1, 1, 1)))
    sent(store, 1)
    pop.forward_to_dlq("g", "t", *handles(pop.receive("g", "t")))
    store.groups.create("h")
    (one,) = pop.receive("h", DLQ, invisible_ms=10_000).messages
    assert one.message.topic == DLQ
    clock.now += 10_000
    pop.sweep()
    (again,) = pop.receive("h", DLQ).messages
    assert (again.message.topic, again.attempt) == (DLQ, 2)


def test_messages_of_a_group_without_retry_queues_are_retried_in_their_own_queue(store, clock):
    pop = popped(store, first_attempts=1)
    store.groups.update("g", retry_queues=0, retry_max_times=2)
    sent(store, 1)
    assert fail(pop, clock, 4) == [{b"0": 1}, {b"0": 2}, {b"0": 3}, {}]
    assert [each.body for each in store.read(DLQ, 0, 0)] == [b"0"]


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff(), [10_000, 30_000, 60_000, 7_200_000]),
        (Backoff((5, 6, 7)), [5, 6, 7, 7]),
        (Backoff(initial_ms=100, max_ms=1000, multiplier=3), [100, 300, 900, 1000]),
    ],
)
def test_retry_delays_grow_as_in_rocketmq(backoff, delays):
    assert [backoff.delay_ms(n) for n in (0, 1, 2, 40)] == delays


class TestFifo:
    @pytest.fixture
    def pop(self, store):
        pop = popped(store)
        store.groups.update("g", fifo=True)
        return pop

    def test_a_message_blocks_only_messages_with_its_key(self, store, pop):
        sent(store, 1, sharding_key="a")
        sent(store, 1, first=1, sharding_key="b")
        sent(store, 1, first=2, sharding_key="a")
        sent(store, 1, first=3)
        first = pop.receive("g", "t", max_messages=1)
        assert bodies(first) == [b"0"]
        assert bodies(pop.receive("g", "t")) == [b"1", b"3"]
        assert bodies(pop.receive("g", "t")) == []
        done = pop.ack("g", "t", handles(first))
        assert done.wakes
        assert attempts(pop.receive("g", "t")) == {b"2": 1}

    def test_unacked_messages_are_received_again_in_order_before_others(self, store, pop, clock):
        sent(store, 4, sharding_key="a")
        first = pop.receive("g", "t", max_messages=3, invisible_ms=10_000)
        pop.ack("g", "t", handles(first)[:1])
        clock.now += 10_000
        assert attempts(pop.receive("g", "t")) == {b"1": 2, b"2": 2, b"3": 1}

    def test_a_failed_message_waits_for_the_rest_of_its_batch(self, store, pop):
        sent(store, 2, sharding_key="a")
        first, second = handles(pop.receive("g", "t"))
        pop.change_invisible("g", "t", first, 0)
        assert bodies(pop.receive("g", "t")) == []
        pop.ack("g", "t", [second])
        assert attempts(pop.receive("g", "t")) == {b"0": 2}

    def test_a_dead_letter_unblocks_messages_with_its_key(self, store, pop, clock):
        store.groups.update("g", retry_max_times=0)
        sent(store, 2, sharding_key="a")
        pop.receive("g", "t", max_messages=1, invisible_ms=10_000)
        clock.now += 10_000
        assert bodies(pop.receive("g", "t")) == []
        swept = pop.sweep()
        assert swept.dead == 1
        assert [one.topic for one in swept.news] == ["t"]
        assert bodies(pop.receive("g", "t")) == [b"1"]

    def test_fifo_messages_are_never_moved_to_the_retry_topic(self, store, clock):
        pop = popped(store, first_attempts=1)
        store.groups.update("g", fifo=True)
        sent(store, 1, sharding_key="a")
        assert fail(pop, clock, 3) == [{b"0": 1}, {b"0": 2}, {b"0": 3}]

    def test_the_same_attempt_receives_the_same_messages(self, store, pop, clock):
        sent(store, 3, sharding_key="a")
        first = pop.receive("g", "t", max_messages=2, attempt_id="x")
        again = pop.receive("g", "t", max_messages=2, attempt_id="x")
        assert handles(again) == handles(first)
        assert attempts(again) == {b"0": 1, b"1": 1}
        assert bodies(pop.receive("g", "t", attempt_id="y")) == []
        acked(pop, first)
        assert bodies(pop.receive("g", "t", attempt_id="x")) == [b"2"]

    def test_messages_far_after_a_blocked_key_are_found_by_several_receives(
        self, store, pop, monkeypatch
    ):
        monkeypatch.setattr(draw, "_MAX_NEW", 4)
        sent(store, 10, sharding_key="a")
        sent(store, 1, first=10, sharding_key="b")
        pop.receive("g", "t", max_messages=1)
        found = [pop.receive("g", "t", max_messages=1) for _ in range(4)]
        assert [bodies(each) for each in found] == [[], [], [b"10"], []]
        assert [each.has_more for each in found] == [True, True, False, False]

    def test_an_ack_in_a_fifo_group_can_be_repeated(self, store, pop):
        sent(store, 1, sharding_key="a")
        received = pop.receive("g", "t")
        assert acked(pop, received) == (True,)
        assert acked(pop, received) == (True,)

    def test_messages_that_a_filter_does_not_select_do_not_block_their_key(self, store, pop):
        from pyrocket.filters.message_filter import MessageFilter

        sent(store, 1, sharding_key="a", tags="A")
        sent(store, 1, first=1, sharding_key="a", tags="B")
        assert bodies(pop.receive("g", "t", where=MessageFilter.parse(tags="B"))) == [b"1"]
