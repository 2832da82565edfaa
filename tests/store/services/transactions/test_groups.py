"""Several producers of several groups, in several open stores of one directory."""

import pytest
from pyrocket.disk.shared_state import HALF_CURSOR
from support.halves import (
    COMMIT,
    MINUTE,
    UNKNOWN,
    Held,
    Listener,
    discarded,
    halves,
    ops,
    producer,
    queue,
)
from support.stores import bodies, message, words


@pytest.fixture
def stores(open_store):
    """The directory opened twice, as by two processes."""
    return open_store(), open_store()


@pytest.fixture
def two(stores):
    return [Held(store) for store in stores]


def test_only_a_process_with_a_producer_of_the_group_checks(stores, two, clock):
    ours, theirs = Listener(UNKNOWN), Listener(UNKNOWN)
    with producer(two[0], "a", ours) as a:
        a.send(message(b"a"))
        with producer(two[1], "b", theirs) as b:
            for _ in range(20):
                clock.now += MINUTE
                assert b.check_now() == 0
        assert halves(stores[0])[0].body == b"a"
        assert len(halves(stores[0])) == 1
        assert theirs.checked == []
        assert discarded(stores[0]) == []
        assert a.check_now() == 1, "no check was counted in the meantime"
        assert halves(stores[0])[1].properties["TRANSACTION_CHECK_TIMES"] == "1"


def test_messages_after_an_undecided_message_of_another_group_are_ended_by_op_messages(
    path, stores, two, clock
):
    with producer(two[0], "a", Listener(UNKNOWN)) as a:
        a.send(message(b"a"))
    listener = Listener(UNKNOWN)
    with producer(two[1], "b", listener) as b:
        b.send(message(b"b"))
        for count in (1, 2, 3):
            clock.now += MINUTE
            assert b.check_now() == 1
            assert [half.group for half in two[0].transactions.pending()] == ["a", "b"]
            assert ops(stores[0]) == [1, 2, 3][:count]
        page = words(path)
        assert page[HALF_CURSOR] == 0
        page.close()
        listener.answer = COMMIT
        clock.now += MINUTE
        assert b.check_now() == 1
    assert bodies(stores[0])[0] == [b"b"]
    assert [half.group for half in two[1].transactions.pending()] == ["a"]


def test_an_immune_message_after_an_undecided_message_of_another_group_is_not_renewed(
    stores, two, clock
):
    """In RocketMQ, an op message for the original would also end its copy."""
    with producer(two[0], "a", Listener(UNKNOWN)) as a:
        a.send(message(b"a"))
    with producer(two[1], "b", Listener(UNKNOWN, COMMIT)) as b:
        b.send(message(b"b"), immunity_s=90)
        clock.now += MINUTE
        assert b.check_now() == 0
        assert len(halves(stores[0])) == 2
        assert ops(stores[0]) == []
        clock.now += MINUTE
        assert b.check_now() == 1
    assert bodies(stores[0])[0] == [b"b"]


def test_two_producers_of_a_group_together_check_a_message_once_a_minute(stores, two, clock):
    listeners = Listener(UNKNOWN), Listener(UNKNOWN)
    with producer(two[0], "pg", listeners[0]) as one:
        one.send(message())
        clock.now += MINUTE // 2
        with producer(two[1], "pg", listeners[1]) as other:
            other.check_now()
            for _ in range(10):
                clock.now += MINUTE // 2
                one.check_now()
                other.check_now()
    asked = len(listeners[0].checked) + len(listeners[1].checked)
    assert asked == 6, "the message is checked once per interval, by either producer"
    assert len(halves(stores[0])) == 7


def test_each_of_several_concurrent_sends_is_decided_by_its_own_listener(stores, two):
    with producer(two[0], "a") as a, producer(two[1], "b") as b:
        for n in range(5):
            assert a.send(message(b"a%d" % n)).error is None
            assert b.send(message(b"b%d" % n)).error is None
    assert len(bodies(stores[0])[0]) == 10
    assert ops(stores[0]) == list(range(10))


def test_first_messages_are_re_appended_when_the_backlog_is_large(path, stores, clock):
    two = [Held(store, max_backlog=6) for store in stores]
    with producer(two[0], "a", Listener(None)) as a:
        a.send(message(b"a", flag=9))
    with producer(two[1], "b", Listener(COMMIT)) as b:
        for n in range(10):
            b.send(message(b"b%d" % n))
        clock.now += MINUTE
        b.check_now()
    (left,) = two[1].transactions.pending()
    assert (left.queue_offset, left.checks) == (11, None), "no check is counted"
    assert queue(stores[0], "RMQ_SYS_TRANS_HALF_TOPIC")[-1].flag == 9
    page = words(path)
    assert page[HALF_CURSOR] == 11
    page.close()
    clock.now += MINUTE
    with producer(two[0], "a", Listener(None, COMMIT)) as a:
        assert a.check_now() == 1
    assert bodies(stores[0])[0][-1] == b"a"


def test_a_discarded_message_after_another_groups_message_gets_an_op_message(stores, clock):
    with producer(stores[0], "a", Listener(None)) as a:
        a.send(message(b"a"))
    with producer(stores[1], "b", Listener(None)) as b:
        b.send(message(b"b"))
        clock.now += 73 * 60 * MINUTE
        assert b.check_now() == 0
    assert [one.body for one in discarded(stores[0])] == [b"b"]
    assert ops(stores[0]) == [1]
    assert [half.group for half in Held(stores[0]).transactions.pending()] == ["a"]


def test_a_read_only_store_lists_the_same_messages(open_store, stores, clock):
    """A store open for reading uses the cursors of the writers."""
    reading = open_store(read_only=True)
    with producer(stores[0], "a", Listener(None)) as a:
        a.send(message(b"1"))
        clock.now += MINUTE
        a.check_now()
        a.send(message(b"2"))
    seen = [half.queue_offset for half in reading.transactions.pending()]
    assert seen == [half.queue_offset for half in stores[0].transactions.pending()] == [1, 2]
