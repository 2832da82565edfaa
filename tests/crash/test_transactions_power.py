"""After a power loss at any point of a transaction, the transaction is neither committed twice nor
forgotten.
"""

import shutil

import pytest
from crash.disk_model import materialise
from crash.power_loss import CONFIG, SHARES, NoPower, Recording
from crash.seeds import SEED
from pyrocket import Store
from support.halves import (
    COMMIT,
    MINUTE,
    ROLLBACK,
    UNKNOWN,
    Held,
    Listener,
    discarded,
    producer,
)
from support.stores import FakeClock, batch, bodies, message, numbered

pytestmark = pytest.mark.crash

HOUR = 60 * MINUTE
TRUTH = {"c": COMMIT, "r": ROLLBACK, "u": UNKNOWN, "d": UNKNOWN, "l": UNKNOWN}
"""Prefix of a body → the result of its local transaction."""


def acknowledged(promises, body, state):
    """Record that a send has returned: it is durable, because the store flushes synchronously."""
    promises.__dict__.setdefault("transactions", {})[body] = state


class Work:
    """A session with producers of three groups."""

    def __init__(self, session, flush):
        self.session, self.flush = session, flush
        self.store = session.open(flush=flush)
        self.held = Held(self.store)
        self.numbers = iter(range(1000))
        self.answer = UNKNOWN

    def send(self, kind, group="pg", **more):
        body = b"%s%d" % (kind.encode(), next(self.numbers))
        self.session.clock.now += 100
        listener = Listener(TRUTH[kind])
        with producer(self.held, group, listener) as one:
            one.send(message(body), **more)
        if self.flush == "sync":
            self.session.record(acknowledged, body, TRUTH[kind])

    def check(self, group="pg", wait=MINUTE):
        self.session.clock.now += wait
        with producer(self.held, group, Listener(UNKNOWN, answer_late)) as one:
            one.check_now()


def answer_late(message):
    """Return the decisions of the transactions that are decided only when they are checked."""
    return COMMIT if message.body.startswith(b"l") else UNKNOWN


def decisions(session, flush="sync"):
    work = Work(session, flush)
    for kind in "crcucr":
        work.send(kind)


def checks(session, flush="sync"):
    """Send undecided transactions of another group, at which the cursor `half` stops."""
    work = Work(session, flush)
    work.send("u", "other")
    for kind in "luc":
        work.send(kind)
    work.check()
    work.send("l", immunity_s=100)
    work.store.flush()
    work.check()
    work.check("other")
    work.send("c")
    work.check()


def discards(session, flush="sync"):
    work = Work(session, flush)
    for kind in "ducd":
        work.send(kind)
    work.check(wait=73 * HOUR)
    work.send("c")
    work.send("l")
    work.check()


def cleaning(session, flush="sync"):
    work = Work(session, flush)
    for kind in "ulu":
        work.send(kind)
    work.store.append_batch(batch(numbered(60), 1), topic="t")
    work.session.clock.now += 10 * HOUR
    work.store.append(message(b"c-", queue_id=1))
    work.store.clean(hours=9)
    work.send("l")
    work.check()


def without_flush(scenario):
    def run(session):
        scenario(session, "async")

    return run


SCENARIOS = {
    f"{each.__name__}-{flush}": each if flush == "sync" else without_flush(each)
    for each in (decisions, checks, discards, cleaning)
    for flush in ("sync", "async")
}


def check_after(path, promises):
    """Recover the store; the listener now knows every decision."""
    clock = FakeClock(1_700_000_000_000 + 20 * HOUR)
    known = promises.__dict__.get("transactions", {})
    with Store.open(path, create=True, config=CONFIG, clock=clock) as store:
        store.topics.create("t")
        held = Held(store)
        asked = []
        for group in ("pg", "other"):
            listener = Listener(UNKNOWN, lambda message: now_known(message, asked))
            with producer(held, group, listener) as one:
                one.check_now()
        assert held.transactions.pending() == []
        found = bodies(store)[0]
        check_found(found, known, asked, [one.body for one in discarded(store)])


def now_known(message, asked):
    asked.append(message.body)
    return {b"c": COMMIT, b"r": ROLLBACK}.get(message.body[:1], COMMIT)


def check_found(found, known, asked, gone):
    assert len(set(found)) == len(found), "committed twice"
    assert len(set(asked)) == len(asked), "checked twice"
    assert len(set(gone)) == len(gone), "discarded twice"
    assert not set(gone) & set(found)
    assert not set(gone) & set(asked)
    assert not [body for body in found if body.startswith(b"r")], "rolled back"
    for body, state in known.items():
        if state is COMMIT:
            assert body in found, "an acknowledged commit is missing"
            assert body not in asked
        elif state is UNKNOWN:
            assert body in [*found, *gone], "an undecided transaction was forgotten"
        else:
            assert body not in asked


def lose_power(name, folder, seed, share, variants=1):
    recording = Recording(SCENARIOS[name], folder, seed)
    points = 0
    with NoPower():
        for label, image, promises in recording.crash_points(variants, share):
            base = folder / "after"
            materialise(image, base)
            try:
                check_after(base / "store", promises)
            except BaseException as error:
                error.add_note(f"{name}, after a power loss: {label}")
                raise
            finally:
                shutil.rmtree(base)
            points += 1
    return points


@pytest.mark.parametrize(("share", "least"), SHARES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_power_loss_at_some_points_neither_repeats_nor_forgets_a_transaction(
    name, share, least, tmp_path
):
    assert lose_power(name, tmp_path, SEED, share) >= least


@pytest.mark.heavy
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_power_loss_at_any_point_neither_repeats_nor_forgets_a_transaction(name, tmp_path):
    assert lose_power(name, tmp_path, SEED, 1.0, variants=5) > 100
