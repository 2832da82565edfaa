"""END_TRANSACTION: validation, rejected decisions, and the records that are written."""

import pytest
from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.errors import MessageError, StoreReadOnlyError, TransactionError
from pyrocket.values.transactions import HalfMessageRef
from support.halves import (
    COMMIT,
    MINUTE,
    ROLLBACK,
    SECOND,
    UNKNOWN,
    Held,
    halves,
    ops,
    producer,
)
from support.stores import bodies, message, words


@pytest.fixture
def sent(one):
    return one.send(message())


def place(result, **changed):
    known = {
        "group": "pg",
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
    }
    return HalfMessageRef(**known | changed)


def refused(store, where, state=COMMIT, **more):
    """Check that a decision is rejected and writes nothing; return its error code."""
    page = words(store.path)
    end = page[PUBLISHED]
    with pytest.raises(TransactionError) as caught:
        store.transactions.end(where, state, **more)
    assert page[PUBLISHED] == end
    page.close()
    return caught.value.code


def test_transactions_can_be_committed_and_rolled_back_without_a_producer(store, one):
    first, second = one.send(message(b"1")), one.send(message(b"2"))
    store.transactions.end(place(second), ROLLBACK)
    store.transactions.end(place(first), COMMIT)
    assert bodies(store)[0] == [b"1"]
    assert ops(store) == [1, 0]


def test_the_decision_unknown_changes_nothing(store, sent):
    store.transactions.end(place(sent), UNKNOWN)
    assert len(store.transactions.pending()) == 1


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("from_check", [True, False])
def test_a_wrong_group_or_offset_is_rejected(store, sent, state, from_check):
    wrong = {
        "TRANSACTION_GROUP_WRONG": [{"group": "other"}, {"group": ""}],
        "TRANSACTION_OFFSET_WRONG": [
            {"physical_offset": sent.physical_offset + 1},
            {"physical_offset": 0},
        ],
        "TRANSACTION_NOT_FOUND": [{"queue_offset": 1}, {"queue_offset": 10**12}],
    }
    for code, changes in wrong.items():
        for changed in changes:
            where = place(sent, **changed)
            assert refused(store, where, state, from_check=from_check) == code


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
def test_an_ended_transaction_cannot_be_ended_again(store, sent, first, second):
    store.transactions.end(place(sent), first)
    for from_check in (True, False):
        code = refused(store, place(sent), second, from_check=from_check)
        assert code == "TRANSACTION_ENDED"
    assert len(bodies(store)[0]) == (first is COMMIT)
    assert ops(store) == [0]


def test_a_renewed_message_can_be_ended_with_its_own_or_its_first_offset(store, one, clock):
    results = [one.send(message(b"%d" % n)) for n in range(2)]
    clock.now += MINUTE
    assert one.check_now() == 2
    store.transactions.end(place(results[0]), COMMIT)
    copy = halves(store)[3]
    store.transactions.end(HalfMessageRef("pg", 3, copy.physical_offset), COMMIT)
    assert bodies(store)[0] == [b"0", b"1"]
    for result in results:
        assert refused(store, place(result)) == "TRANSACTION_ENDED"


def test_a_discarded_transaction_cannot_be_ended(store, one, sent, clock):
    clock.now += 100 * 60 * MINUTE
    one.check_now()
    assert refused(store, place(sent)) == "TRANSACTION_ENDED"


@pytest.mark.parametrize(("immunity_s", "most_s"), [(0, 6), (5, 6), (30, 30)])
def test_after_the_immunity_time_only_a_check_can_end_a_transaction(
    store, one, clock, immunity_s, most_s
):
    results = [one.send(message(b"%d" % n), immunity_s=immunity_s) for n in range(2)]
    clock.now += most_s * SECOND
    store.transactions.end(place(results[0]), COMMIT)
    clock.now += 1
    assert refused(store, place(results[1])) == "TRANSACTION_TOO_LATE"
    store.transactions.end(place(results[1]), COMMIT, from_check=True)
    assert bodies(store)[0] == [b"0", b"1"]


def test_commit_to_deleted_topic_is_rejected_until_topic_exists_again(store, sent):
    store.topics.delete("t")
    assert refused(store, place(sent)) == "TRANSACTION_TOPIC_GONE"
    store.topics.create("t")
    store.transactions.end(place(sent), COMMIT)
    assert bodies(store)[0] == [b"x"]


def test_a_commit_to_a_removed_queue_is_stored_in_an_existing_queue(store, one):
    result = one.send(message(queue_id=3))
    store.topics.update("t", read_queues=2, write_queues=2)
    store.transactions.end(place(result), COMMIT)
    assert bodies(store) == {0: [], 1: [b"x"]}


@pytest.mark.parametrize("delay", [{"delay_level": 1}, {"deliver_at_ms": 5}, {"deliver_at_ms": 0}])
def test_a_delayed_transactional_message_is_rejected(store, one, delay):
    with pytest.raises(MessageError, match="cannot have a delay") as caught:
        one.send(message(**delay))
    assert caught.value.code == "TRANSACTION_DELAYED"
    assert halves(store) == []


def test_read_only_store_has_no_producers_but_lists_pending(sent, open_store):
    reading = Held(open_store(read_only=True))
    with pytest.raises(StoreReadOnlyError):
        producer(reading)
    assert [half.transaction_id for half in reading.transactions.pending()] == [sent.transaction_id]
