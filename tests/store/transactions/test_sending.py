"""A transactional send: half message, local transaction, and what that decides."""

import pytest
from halves import COMMIT, ROLLBACK, UNKNOWN, Held, Listener, halves, ops, producer, queue
from pyrocket import Message
from stores import bodies, message


@pytest.fixture
def store(open_store):
    return open_store()


@pytest.fixture
def held(store):
    return Held(store)


def test_a_committed_message_is_seen_and_looks_like_rocketmqs(store, held, clock):
    listener = Listener(COMMIT)
    sent = Message(topic="t", body=b"x", tags="A", keys=["k"], properties={"a": "b"}, queue_id=2)
    with producer(held, "pg", listener) as one:
        result = one.send(sent, {"order": 7})
    ((seen, arg),) = listener.executed
    assert (seen.topic, seen.queue_id, seen.body, seen.tags) == ("t", 2, b"x", "A")
    assert (arg, seen.msg_id) == ({"order": 7}, result.transaction_id)
    (half,), (committed,) = halves(store), queue(store, "t", 2)
    own = {"TRAN_MSG": "true", "PGROUP": "pg", "REAL_TOPIC": "t", "REAL_QID": "2"}
    user = {"TAGS": "A", "KEYS": "k", "a": "b", "UNIQ_KEY": result.transaction_id}
    assert half.properties == committed.properties == own | user
    assert (half.queue_id, half.sys_flag, half.prepared_transaction_offset) == (0, 0, 0)
    assert (committed.sys_flag, committed.body) == (8, b"x")
    assert committed.prepared_transaction_offset == half.physical_offset == result.physical_offset
    assert ops(store) == [0]
    assert (result.state, result.error, result.queue_id) == (COMMIT, None, 2)
    assert held.transactions.pending() == []


def test_before_the_decision_nobody_sees_the_message(store, held):
    def look(message, arg):
        assert bodies(store) == {queue_id: [] for queue_id in range(4)}
        assert [one.transaction_id for one in held.transactions.pending()] == [message.msg_id]
        return COMMIT

    with producer(held, listener=Listener(look)) as one:
        one.send(message())
    assert bodies(store)[0] == [b"x"]


def test_a_rolled_back_message_is_never_seen(store, held):
    with producer(held, listener=Listener(ROLLBACK)) as one:
        assert one.send(message()).state is ROLLBACK
    assert bodies(store)[0] == []
    assert ops(store) == [0]
    assert held.transactions.pending() == []


@pytest.mark.parametrize("answer", [None, UNKNOWN, "COMMIT", 1])
def test_anything_that_is_no_decision_leaves_it_undecided(store, held, answer):
    with producer(held, listener=Listener(answer)) as one:
        assert one.send(message()).state is UNKNOWN
    assert len(held.transactions.pending()) == 1
    assert ops(store) == []


def test_an_exception_of_the_listener_leaves_it_undecided(held, caplog):
    def fail(message, arg):
        raise RuntimeError("database gone")

    with producer(held, listener=Listener(fail)) as one:
        result = one.send(message())
    assert (result.state, result.error) == (UNKNOWN, None)
    assert "database gone" in caplog.text
    assert len(held.transactions.pending()) == 1
