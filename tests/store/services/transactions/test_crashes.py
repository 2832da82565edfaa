"""After a crash at any step, a half message is not lost and is committed at most once."""

from itertools import count

import pytest
from pyrocket import Retention, Store
from support.dying import DeathError, DyingAt
from support.halves import (
    COMMIT,
    MINUTE,
    ROLLBACK,
    UNKNOWN,
    Held,
    Listener,
    discarded,
    halves,
    ops,
    producer,
)
from support.inner import inner
from support.stores import SMALL, batch, bodies, message, numbered

KEPT = SMALL.with_sizes(retention=Retention())
HOUR = 60 * MINUTE


@pytest.fixture(params=[3, pytest.param(1, marks=pytest.mark.heavy)])
def die_everywhere(request, tmp_path, monkeypatch, clock):
    """Return a function that crashes at the steps of `act`, which gets the result of `prepare`, and
    yields the directories: at every third step, or in the heavy run at each.
    """
    began = clock.now

    def die(prepare, act):
        for half in (False, True):
            for step in count(0, request.param):
                clock.now, path = began, tmp_path / f"{step}{half}"
                store = Store.open(path, create=True, config=KEPT, clock=clock)
                prepared = prepare(store)
                try:
                    with monkeypatch.context() as patch:
                        DyingAt(patch, step, half)
                        act(store, prepared)
                except DeathError:
                    inner(store).crash()
                    yield path
                else:
                    store.close()
                    assert step > 3
                    break

    return die


def reopened(path, clock):
    """Return the store after the next writer has once held the write lock."""
    store = Store.open(path, clock=clock)
    with inner(store).writer.exclusive():
        return store


def decided_by(answers, **more):
    """A listener that knows the decision for each body."""
    return Listener(more.get("state", UNKNOWN), lambda message: answers[message.body])


def asked(store, answers, clock, group="pg"):
    """Return the bodies of the messages about which a producer in the next process is asked."""
    clock.now += MINUTE
    listener = decided_by(answers)
    with producer(Held(store), group, listener) as one:
        one.check_now()
    return [seen.body for seen in listener.checked]


ANSWERS = {b"yes": COMMIT, b"no": ROLLBACK}


@pytest.mark.parametrize("body", ANSWERS)
def test_after_a_crash_in_a_send_or_decision_a_message_is_committed_at_most_once(
    die_everywhere, clock, body
):
    def act(store, one):
        one.listener.state = ANSWERS[body]
        one.send(message(body))

    found = set()
    for path in die_everywhere(prepare_with(ROLLBACK), act):
        with reopened(path, clock) as store:
            before = bodies(store)[0]
            stored, decisions = len(halves(store)), len(ops(store))
            assert len(before) == (stored == decisions == 2 and body == b"yes")
            questions = asked(store, ANSWERS, clock)
            assert questions == ([body] if stored > decisions else [])
            assert bodies(store)[0] == ([body] if stored == 2 and body == b"yes" else [])
            assert Held(store).transactions.pending() == []
            found.add((stored, decisions))
    assert found == {(1, 1), (2, 1), (2, 2)}


def prepare_with(state):
    def prepare(store):
        one = producer(Held(store), "pg", Listener(state))
        one.send(message(b"first"))
        return one

    return prepare


def test_after_a_crash_in_a_check_each_message_is_pending_once(die_everywhere, clock):
    """One append writes the copies, the op messages for their originals, and the cursors."""

    def prepare(store):
        with producer(Held(store), "other", Listener(None)) as other:
            other.send(message(b"held"))
        one = producer(Held(store), "pg", Listener(None))
        for body in ANSWERS:
            one.send(message(body))
        clock.now += MINUTE
        return one

    found = set()
    for path in die_everywhere(prepare, lambda _, one: one.check_now()):
        with reopened(path, clock) as store:
            pending = Held(store).transactions.pending()
            assert [half.group for half in pending] == ["other", "pg", "pg"]
            copied = len(halves(store)) > 3
            assert [half.checks for half in pending[1:]] == ([1, 1] if copied else [None] * 2)
            assert ops(store) == ([1, 2] if copied else [])
            assert sorted(asked(store, ANSWERS, clock)) == [b"no", b"yes"]
            assert bodies(store)[0] == [b"yes"]
            assert asked(store, {b"held": COMMIT}, clock, "other") == [b"held"]
            assert bodies(store)[0] == [b"yes", b"held"]
            found.add(copied)
    assert found == {True, False}


def test_after_a_crash_in_a_discard_messages_are_discarded_once(die_everywhere, clock):
    def prepare(store):
        one = producer(Held(store), "pg", Listener(None))
        for body in ANSWERS:
            one.send(message(body))
        clock.now += 73 * HOUR
        return one

    found = set()
    for path in die_everywhere(prepare, lambda _, one: one.check_now()):
        with reopened(path, clock) as store:
            found.add(len(discarded(store)))
            assert asked(store, ANSWERS, clock) == []
            assert len(discarded(store)) == 2
            assert Held(store).transactions.pending() == []
    assert found == {0, 2}


def test_undecided_messages_are_kept_when_files_are_deleted(die_everywhere, clock):
    def prepare(store):
        held = Held(store)
        with producer(held, "pg", Listener(None)) as one:
            for body in ANSWERS:
                one.send(message(body))
        store.append_batch(batch(numbered(40), 1), topic="t")
        clock.now += 10 * HOUR
        return held

    found = set()
    act = lambda store, held: store.clean(hours=9)  # noqa: E731
    for path in die_everywhere(prepare, act):
        with reopened(path, clock) as store:
            pending = Held(store).transactions.pending()
            found.add(pending[0].queue_offset)
            assert len(pending) == 2
            assert sorted(asked(store, ANSWERS, clock)) == [b"no", b"yes"]
            assert bodies(store)[0] == [b"yes"]
    assert found == {0, 2}
