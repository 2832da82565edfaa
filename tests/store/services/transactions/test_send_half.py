"""A transactional send: half message, local transaction, and decision."""

import threading

import pytest
from pyrocket import Message
from pyrocket.disk import io
from pyrocket.errors import StoreUnavailableError
from support.halves import COMMIT, ROLLBACK, Listener, halves, ops, producer, queue, truth
from support.stores import bodies, message


def test_a_committed_message_is_visible_and_has_rocketmqs_properties(store, clock):
    listener = Listener(COMMIT)
    sent = Message(topic="t", body=b"x", tags="A", keys=["k"], properties={"a": "b"}, queue_id=2)
    with producer(store, "pg", listener) as one:
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
    assert store.transactions.pending() == []


def test_message_is_invisible_before_the_decision(store):
    def look(message, arg):
        assert bodies(store) == {queue_id: [] for queue_id in range(4)}
        assert [one.transaction_id for one in store.transactions.pending()] == [message.msg_id]
        return COMMIT

    with producer(store, listener=Listener(look)) as one:
        one.send(message())
    assert bodies(store)[0] == [b"x"]


def test_a_rolled_back_message_never_becomes_visible(store):
    with producer(store, listener=Listener(ROLLBACK)) as one:
        assert one.send(message()).state is ROLLBACK
    assert bodies(store)[0] == []
    assert ops(store) == [0]
    assert store.transactions.pending() == []


def test_a_failed_send_runs_no_local_transaction(store, monkeypatch):
    def full(descriptor, data, at):
        raise OSError(28, "No space left on device")

    listener = Listener(COMMIT)
    with producer(store, listener=listener) as one:
        one.send(message(b"a"))
        with monkeypatch.context() as patch:
            patch.setattr(io, "write_at", full)
            with pytest.raises(StoreUnavailableError):
                one.send(message(b"b"))
        one.send(message(b"c"))
    assert len(listener.executed) == 2
    assert bodies(store)[0] == [b"a", b"c"]


def test_a_failed_commit_is_reported_and_retried_by_a_check(store, monkeypatch, clock):
    def full(descriptor, data, at):
        raise OSError(28, "No space left on device")

    def commit_on_a_full_disk(message, arg):
        patch.setattr(io, "write_at", full)
        return COMMIT

    with producer(store, listener=Listener(commit_on_a_full_disk, COMMIT)) as one:
        with monkeypatch.context() as patch:
            result = one.send(message(b"a"))
        assert (result.state, result.error.code) == (COMMIT, "WRITE_FAILED")
        assert len(store.transactions.pending()) == 1
        clock.now += 60_000
        assert one.check_now() == 1
    assert bodies(store)[0] == [b"a"]


def test_threads_that_share_a_producer_do_not_mix_their_transactions(store):
    with producer(store, listener=Listener(truth)) as one:
        threads = [
            threading.Thread(target=send_all, args=(one, f"{kind}{n}"))
            for n, kind in enumerate("crcr")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = sorted(bodies(store)[0])
    assert found == sorted(b"c%d-%d" % (n, at) for n in (0, 2) for at in range(10))
    assert sorted(ops(store)) == list(range(40))


def send_all(one, name):
    for at in range(10):
        assert one.send(message(f"{name}-{at}".encode()), arg=True).error is None


def test_a_long_body_is_committed_unchanged(store):
    body = b"long " * 2000
    seen = []
    listener = Listener(lambda message, arg: seen.append(message.body) or COMMIT)
    with producer(store, listener=listener) as one:
        one.send(message(body))
    (half,), (committed,) = halves(store), queue(store, "t")
    assert seen == [body]
    assert half.body == committed.body == body
    assert committed.sys_flag == half.sys_flag | 8
    assert committed.store_size < len(body), "it is compressed"
