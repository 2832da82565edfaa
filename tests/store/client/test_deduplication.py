"""A deduplicated listener receives each key once."""

import logging

import pytest
from pyrocket.client.deduplication.listener import EXPIRE_EVERY, Deduplicated, message_key
from pyrocket.client.deduplication.sqlite import SqliteMarks
from pyrocket.client.deduplication.store import Mark
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import InvalidInputError, StoreUnavailableError
from support.payments import payment
from support.stores import FakeClock

LEASE_MS, KEEP_MS = 1000, 60_000
LATER, SUSPEND = ConsumeResult.RECONSUME_LATER, ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT


class Shop:
    """A listener that records the keys it received, and returns or raises `answer`."""

    def __init__(self, answer=ConsumeResult.SUCCESS):
        self.answer, self.received = answer, []

    def __call__(self, messages):
        self.received += [message.keys[0] for message in messages]
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def marks(tmp_path):
    with SqliteMarks(tmp_path / "marks.db", group="billing") as store:
        yield store


@pytest.fixture
def shop():
    return Shop()


@pytest.fixture
def listener(shop, marks, clock):
    return Deduplicated(shop, store=marks, lease_ms=LEASE_MS, keep_ms=KEEP_MS, clock=clock)


def batch(*keys):
    return [payment(key) for key in keys]


def test_a_duplicate_is_acknowledged_and_not_received_again(listener, shop):
    assert listener(batch("a")) == ConsumeResult.SUCCESS
    assert listener(batch("a")) == ConsumeResult.SUCCESS
    assert shop.received == ["a"]


def test_the_same_key_in_another_group_is_not_a_duplicate(tmp_path, listener, shop, clock):
    listener(batch("a"))
    with SqliteMarks(tmp_path / "marks.db", group="shipping") as other:
        Deduplicated(shop, store=other, clock=clock)(batch("a"))
    assert shop.received == ["a", "a"]


def test_the_key_function_decides_what_is_a_duplicate(shop, marks):
    listener = Deduplicated(shop, store=marks, key=lambda message: message.topic)
    listener(batch("a", "b"))
    assert shop.received == ["a"]


def test_a_batch_is_received_without_its_duplicates(listener, shop):
    listener(batch("b"))
    shop.received.clear()
    assert listener(batch("a", "b", "c", "a")) == ConsumeResult.SUCCESS
    assert shop.received == ["a", "c"]


@pytest.mark.parametrize("answer", [LATER, SUSPEND, None, True, "SUCCESS"])
def test_a_result_other_than_success_is_returned_and_releases_the_marks(listener, shop, answer):
    shop.answer = answer
    assert listener(batch("a", "b")) is answer
    shop.answer = ConsumeResult.SUCCESS
    assert listener(batch("b", "a")) == ConsumeResult.SUCCESS
    assert shop.received == ["a", "b", "b", "a"]


@pytest.mark.parametrize("error", [ValueError("no money"), KeyboardInterrupt()])
def test_an_exception_is_raised_and_releases_the_marks(listener, shop, error):
    shop.answer = error
    with pytest.raises(type(error)):
        listener(batch("a"))
    shop.answer = ConsumeResult.SUCCESS
    listener(batch("a"))
    assert shop.received == ["a", "a"]


def test_marks_after_the_ack_index_are_released(listener, shop):
    listener(batch("x"))
    shop.received.clear()
    shop.answer = ConsumeResult.success_up_to(1)
    # x is a duplicate: the listener receives a, b, c, and has consumed a and b.
    assert listener(batch("a", "x", "b", "c", "a")) == ConsumeResult.success_up_to(2)
    shop.answer = ConsumeResult.SUCCESS
    assert listener(batch("a", "b", "c")) == ConsumeResult.SUCCESS
    assert shop.received == ["a", "b", "c", "c"]


def test_a_batch_of_which_nothing_is_acknowledged_is_sent_back(listener, shop):
    shop.answer = ConsumeResult.success_up_to(-1)
    assert listener(batch("a", "b")) == LATER


def test_a_key_that_another_consumer_works_on_is_sent_back_until_its_lease_ends(
    listener, shop, marks, clock
):
    assert marks.begin(["payments#b"], "other", clock(), LEASE_MS) == [Mark.BEGUN]
    assert listener(batch("b")) == LATER
    assert listener(batch("a", "b", "c")) == ConsumeResult.success_up_to(0)
    assert shop.received == ["a"]
    clock.now += LEASE_MS
    assert listener(batch("b", "c")) == ConsumeResult.SUCCESS
    assert shop.received == ["a", "b", "c"]


def test_a_consumer_whose_lease_has_ended_does_not_release_the_mark_of_its_successor(marks, clock):
    marks.begin(["a"], "slow", clock(), LEASE_MS)
    clock.now += LEASE_MS
    assert marks.begin(["a"], "next", clock(), LEASE_MS) == [Mark.BEGUN]
    marks.release(["a"], "slow")
    assert marks.begin(["a"], "third", clock(), LEASE_MS) == [Mark.BUSY]


def test_work_that_is_done_after_its_lease_is_marked_as_done(marks, clock):
    marks.begin(["a"], "slow", clock(), LEASE_MS)
    clock.now += LEASE_MS
    marks.begin(["a"], "next", clock(), LEASE_MS)
    marks.done(["a"], "slow", clock(), KEEP_MS)
    marks.release(["a"], "next")
    assert marks.begin(["a"], "third", clock(), LEASE_MS) == [Mark.DONE]


def test_a_key_is_new_again_after_its_mark_has_expired(listener, shop, clock):
    listener(batch("a"))
    clock.now += KEEP_MS - 1
    listener(batch("a"))
    assert shop.received == ["a"]
    clock.now += 1
    listener(batch("a"))
    assert shop.received == ["a", "a"]


def test_expired_marks_are_deleted_while_messages_are_consumed(listener, marks, clock):
    listener([payment(f"old-{number}") for number in range(EXPIRE_EVERY)])
    clock.now += KEEP_MS
    listener([payment(f"new-{number}") for number in range(EXPIRE_EVERY)])
    assert marks.expire(clock(), 10_000) == 0
    assert marks.expire(clock() + KEEP_MS, 600) == 600
    assert marks.expire(clock() + KEEP_MS, 600) == 400


def test_marks_survive_the_process(tmp_path, clock, shop):
    for _ in range(2):
        with SqliteMarks(tmp_path / "marks.db", group="billing") as store:
            Deduplicated(shop, store=store, clock=clock)(batch("a"))
    assert shop.received == ["a"]


class Broken:
    """A store of marks whose methods fail if they are in `failing`."""

    is_atomic = False

    def __init__(self, store, *failing):
        self._store, self._failing = store, failing

    def __getattr__(self, name):
        return self._fail if name in self._failing else getattr(self._store, name)

    def _fail(self, *arguments):
        raise StoreUnavailableError("the disk is full")


@pytest.mark.parametrize("failing", ["begin", "done"])
def test_an_error_of_the_store_is_raised(marks, shop, failing):
    listener = Deduplicated(shop, store=Broken(marks, failing))
    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        listener(batch("a"))
    assert shop.received == ([] if failing == "begin" else ["a"])


def test_an_error_while_releasing_does_not_replace_the_error_of_the_listener(marks, shop, caplog):
    shop.answer = ValueError("no money")
    with pytest.raises(ValueError, match="no money"), caplog.at_level(logging.WARNING):
        Deduplicated(shop, store=Broken(marks, "release"))(batch("a"))
    assert "could not be released" in caplog.text


def test_the_default_key_is_the_topic_and_the_keys():
    assert message_key(payment("o-1 o-2", topic="orders")) == "orders#o-1 o-2"


@pytest.mark.parametrize("keys", ["", " "])
def test_a_message_without_keys_is_an_error_before_anything_is_consumed(listener, shop, keys):
    with pytest.raises(InvalidInputError, match="has no KEYS") as error:
        listener([payment("a"), payment(keys)])
    assert error.value.code == "DEDUPLICATION_KEY"
    assert not shop.received


@pytest.mark.parametrize(
    ("key", "code"),
    [
        *((empty, "DEDUPLICATION_KEY") for empty in ("", None, 0)),
        *((invalid, "NOT_A_TEXT") for invalid in (7, b"a", ("a",), "\ud800")),
    ],
)
def test_an_invalid_key_is_an_error(shop, marks, key, code):
    with pytest.raises(InvalidInputError) as error:
        Deduplicated(shop, store=marks, key=lambda message: key)(batch("a"))
    assert error.value.code == code
    assert not shop.received


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ({"lease_ms": 0}, "DEDUPLICATION_TIME"),
        ({"keep_ms": -1}, "DEDUPLICATION_TIME"),
        ({"lease_ms": "1s"}, "NOT_A_NUMBER"),
        ({"keep_ms": 1.5}, "NOT_A_NUMBER"),
        ({"key": "keys"}, "DEDUPLICATION_LISTENER"),
        ({"listener": None}, "DEDUPLICATION_LISTENER"),
        ({"store": "marks.db"}, "DEDUPLICATION_STORE"),
    ],
)
def test_an_invalid_argument_is_an_error(shop, marks, argument, code):
    with pytest.raises(InvalidInputError) as error:
        Deduplicated(**{"listener": shop, "store": marks, **argument})
    assert error.value.code == code
