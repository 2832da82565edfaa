"""Undecided half messages survive the deletion of their log files."""

import pytest
from pyrocket import Retention
from pyrocket.disk.shared_state import HALF_CURSOR
from pyrocket.errors import TransactionError
from pyrocket.values.transactions import CheckPolicy, HalfMessageRef
from support.halves import COMMIT, MINUTE, ROLLBACK, UNKNOWN, Held, Listener, halves, ops, producer
from support.inner import inner
from support.stores import SMALL, batch, bodies, log_files, message, numbered, set_disk_usage, words

HOUR = 60 * MINUTE


@pytest.fixture
def store(open_store):
    return open_store(config=SMALL.with_sizes(retention=Retention()))


@pytest.fixture
def held(store):
    return Held(store)


def fill(store, count=40):
    store.append_batch(batch(numbered(count), 0), topic="t")


def clean(store, clock):
    """Delete all files that were full three days ago."""
    fill(store)
    clock.now += 73 * HOUR
    report = store.clean(hours=72)
    assert report.removals
    return report


def test_undecided_messages_are_re_appended_before_files_are_deleted(path, store, held, clock):
    with producer(held, "a", Listener(UNKNOWN)) as a:
        results = [a.send(message(b"%d" % n, flag=n)) for n in range(3)]
        held.transactions.end(HalfMessageRef("a", 1, results[1].physical_offset), ROLLBACK)
    clean(store, clock)
    left = held.transactions.pending()
    assert [half.queue_offset for half in left] == [3, 4]
    assert all(half.checks is None for half in left), "no check is counted"
    assert min(half.physical_offset for half in left) >= int(log_files(path)[0].name)
    assert [one.flag for one in halves(store) if one.queue_offset >= 3] == [0, 2]
    assert ops(store)[1:] == []
    page = words(path)
    assert page[HALF_CURSOR] == 3
    page.close()
    held.transactions.end(HalfMessageRef("a", 3, left[0].physical_offset), COMMIT)
    assert bodies(store)[0][-1] == b"0"


def test_sender_can_decide_message_after_its_file_was_deleted(store, held, clock):
    def slow(message, arg):
        clean(store, clock)
        return COMMIT

    with producer(held, "a", Listener(slow)) as a:
        assert a.send(message(b"kept")).error is None
    assert bodies(store)[0][-1] == b"kept"
    assert held.transactions.pending() == []


def test_ended_messages_are_deleted_with_their_file(store, held, clock):
    with producer(held, "a", Listener(COMMIT)) as a:
        result = a.send(message(b"gone"))
    clean(store, clock)
    assert held.transactions.pending() == []
    assert halves(store) == []
    with pytest.raises(TransactionError) as caught:
        held.transactions.end(HalfMessageRef("a", 0, result.physical_offset), COMMIT)
    assert caught.value.code == "TRANSACTION_ENDED"


def test_undecided_message_survives_many_cleanings(store, held, clock):
    with producer(held, "a", Listener(UNKNOWN)) as a:
        a.send(message(b"kept"))
    for n in range(1, 6):
        clean(store, clock)
        (left,) = held.transactions.pending()
        assert (left.queue_offset, left.checks) == (n, None)


def test_ended_messages_stay_ended_when_their_op_messages_are_deleted(store, held, clock):
    """A message of another group keeps the half cursor before the ended messages."""
    with producer(held, "a", Listener(UNKNOWN)) as a, producer(held, "b", Listener(COMMIT)) as b:
        a.send(message(b"held"))
        for n in range(8):
            b.send(message(b"%d" % n))
            fill(store, 10)
    clean(store, clock)
    assert [half.group for half in held.transactions.pending()] == ["a"]
    assert [half.group for half in Held(store).transactions.pending()] == ["a"]


def test_many_messages_are_re_appended_in_parts(path, store, held, clock):
    inner(store).transaction_bridge.policy = CheckPolicy(max_append_bytes=1000)
    with producer(held, "a", Listener(UNKNOWN)) as a:
        for n in range(50):
            a.send(message(b"%d" % n))
    clean(store, clock)
    left = held.transactions.pending()
    assert len(left) == 50
    assert min(half.physical_offset for half in left) >= int(log_files(path)[0].name)


def test_decisions_are_accepted_on_a_full_disk(store, held, clock, monkeypatch):
    """A cleaning during the decision would re-append the message that is being decided."""

    def while_it_is_full(message, arg):
        fill(store)
        set_disk_usage(monkeypatch, 990)
        clock.now += 73 * HOUR
        return COMMIT

    with producer(held, "a", Listener(while_it_is_full)) as a:
        assert a.send(message(b"decided")).error is None
        assert bodies(store)[0][-1] == b"decided"
        assert held.transactions.pending() == []


def test_full_disk_is_cleaned_and_undecided_messages_are_kept(
    path, store, held, clock, monkeypatch
):
    with producer(held, "a", Listener(UNKNOWN, COMMIT)) as a:
        a.send(message(b"kept"))
        fill(store)
        fill(store)
        files = len(log_files(path))
        set_disk_usage(monkeypatch, 800)
        clock.now += 70 * HOUR
        store.append(message(b"late"))
        clock.now += 3 * HOUR
        store.append(message(b"later"))
        assert len(log_files(path)) < files
        (left,) = held.transactions.pending()
        assert left.queue_offset == 1
        clock.now -= 10 * HOUR
        assert a.check_now() == 1
    assert bodies(store)[0][-1] == b"kept"
