"""END_TRANSACTION: what it checks, what it refuses, and what it writes."""

import pytest
from halves import COMMIT, MINUTE, ROLLBACK, SECOND, UNKNOWN, Held, Listener, halves, ops, producer
from pyrocket.disk.state_page import PUBLISHED
from pyrocket.errors import GroupNameError, MessageError, StoreReadOnlyError, TransactionError
from pyrocket.transactions.words import HalfPlace
from stores import bodies, message, words


@pytest.fixture
def store(open_store):
    return open_store()


@pytest.fixture
def held(store):
    return Held(store)


@pytest.fixture
def one(held):
    with producer(held, "pg", Listener(UNKNOWN)) as one:
        yield one


@pytest.fixture
def sent(one):
    return one.send(message())


def place(result, **changed):
    known = {
        "group": "pg",
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
    }
    return HalfPlace(**known | changed)


def refused(held, where, state=COMMIT, **more):
    """The code with which it is refused; nothing is written then."""
    page = words(held.transactions._layout.root)
    end = page[PUBLISHED]
    with pytest.raises(TransactionError) as caught:
        held.transactions.end(where, state, **more)
    assert page[PUBLISHED] == end
    page.close()
    return caught.value.code


def test_commit_and_rollback_by_hand(store, held, one):
    first, second = one.send(message(b"1")), one.send(message(b"2"))
    held.transactions.end(place(second), ROLLBACK)
    held.transactions.end(place(first), COMMIT)
    assert bodies(store)[0] == [b"1"]
    assert ops(store) == [1, 0]


def test_unknown_changes_nothing(held, sent):
    held.transactions.end(place(sent), UNKNOWN)
    assert len(held.transactions.pending()) == 1


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("from_check", [True, False])
def test_wrong_names_are_refused(held, sent, state, from_check):
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
            assert refused(held, where, state, from_check=from_check) == code


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
def test_what_has_ended_is_not_decided_again(store, held, sent, first, second):
    held.transactions.end(place(sent), first)
    for from_check in (True, False):
        code = refused(held, place(sent), second, from_check=from_check)
        assert code == "TRANSACTION_ENDED"
    assert len(bodies(store)[0]) == (first is COMMIT)
    assert ops(store) == [0]


def test_what_was_put_back_is_decided_by_either_place(store, held, one, clock):
    results = [one.send(message(b"%d" % n)) for n in range(2)]
    clock.now += MINUTE
    assert one.check_now() == 2
    held.transactions.end(place(results[0]), COMMIT)
    copy = halves(store)[3]
    held.transactions.end(HalfPlace("pg", 3, copy.physical_offset), COMMIT)
    assert bodies(store)[0] == [b"0", b"1"]
    for result in results:
        assert refused(held, place(result)) == "TRANSACTION_ENDED"


def test_what_was_discarded_has_ended(held, one, sent, clock):
    clock.now += 100 * 60 * MINUTE
    one.check_now()
    assert refused(held, place(sent)) == "TRANSACTION_ENDED"


@pytest.mark.parametrize(("immunity_s", "most_s"), [(0, 6), (5, 6), (30, 30)])
def test_a_decision_after_the_immunity_is_only_taken_as_an_answer(
    store, held, one, clock, immunity_s, most_s
):
    results = [one.send(message(b"%d" % n), immunity_s=immunity_s) for n in range(2)]
    clock.now += most_s * SECOND
    held.transactions.end(place(results[0]), COMMIT)
    clock.now += 1
    assert refused(held, place(results[1])) == "TRANSACTION_TOO_LATE"
    held.transactions.end(place(results[1]), COMMIT, from_check=True)
    assert bodies(store)[0] == [b"0", b"1"]


def test_a_send_tells_why_its_decision_was_not_written(store, held, clock):
    def slow(message, arg):
        clock.now += MINUTE
        return COMMIT

    with producer(held, listener=Listener(slow, COMMIT)) as one:
        result = one.send(message(), immunity_s=10)
        assert (result.state, result.error.code) == (COMMIT, "TRANSACTION_TOO_LATE")
        clock.now += MINUTE
        one.check_now()
    assert bodies(store)[0] == [b"x"]


def test_a_commit_into_a_deleted_topic_is_refused_and_goes_on_when_it_is_back(store, held, sent):
    store.delete_topic("t")
    assert refused(held, place(sent)) == "TRANSACTION_TOPIC_GONE"
    store.create_topic("t")
    held.transactions.end(place(sent), COMMIT)
    assert bodies(store)[0] == [b"x"]


def test_a_commit_into_a_queue_that_was_lost_goes_to_one_that_is_there(store, held, one):
    result = one.send(message(queue_id=3))
    store.update_topic("t", read_queues=2, write_queues=2)
    held.transactions.end(place(result), COMMIT)
    assert bodies(store) == {0: [], 1: [b"x"]}


@pytest.mark.parametrize("delay", [{"delay_level": 1}, {"deliver_at_ms": 5}, {"deliver_at_ms": 0}])
def test_a_delay_is_refused(store, one, delay):
    with pytest.raises(MessageError, match="cannot have a delay") as caught:
        one.send(message(**delay))
    assert caught.value.code == "TRANSACTION_DELAYED"
    assert halves(store) == []


def test_a_group_has_a_legal_name(held):
    with pytest.raises(GroupNameError):
        producer(held, "no group!")


def test_a_closed_producer_sends_nothing(one):
    one.close()
    with pytest.raises(TransactionError, match="closed"):
        one.send(message())


def test_a_store_that_is_only_read_has_no_producers_but_shows_what_is_pending(sent, open_store):
    reading = Held(open_store(read_only=True))
    with pytest.raises(StoreReadOnlyError):
        producer(reading)
    assert [half.transaction_id for half in reading.transactions.pending()] == [sent.transaction_id]
    assert reading.transactions.undecided_offsets().tolist() == [0]
