"""Processes that send in transactions are killed: each message is committed once or never."""

import random
import sys
import time
from collections import Counter

import pytest
from crash.children import send_for_ever
from crash.nursery import wait_for_lines
from crash.seeds import SEED
from pyrocket import Store
from pyrocket.tools.verify.verify import verify
from support.halves import UNKNOWN, Held, Listener, halves, ops, producer, truth
from support.stores import bodies

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]

GROUPS = ("a", "a", "b")


def run_and_kill(nursery, path, diaries, rng, round_):
    """Run three processes that send and check, and kill all of them at random moments.

    The first kill is after each process has sent some messages, which takes longer on a busy
    machine.
    """
    children = [
        nursery.start(
            send_for_ever,
            path=path,
            diaries=diaries,
            name=f"{round_}-{n}",
            group=group,
            seed=rng.randrange(10**9),
        )
        for n, group in enumerate(GROUPS)
    ]
    for n in range(len(GROUPS)):
        wait_for_lines(diaries / f"{round_}-{n}", 4)
    for child in rng.sample(children, len(children)):
        time.sleep(rng.uniform(0, 0.4))
        nursery.kill(child)


def name_of(body):
    return body.rstrip(b".")


def check(path, diaries):
    """Open the producers again and check that every transaction ends as decided."""
    with Store.open(path) as store:
        held = Held(store, timeout_ms=0, interval_ms=0)
        with (
            producer(held, "a", Listener(UNKNOWN, truth)) as a,
            producer(held, "b", Listener(UNKNOWN, truth)) as b,
        ):
            deadline = time.monotonic() + 30
            while held.transactions.pending():
                assert time.monotonic() < deadline
                a.check_now()
                b.check_now()
                time.sleep(0.02)
        stored = {name_of(half.body) for half in halves(store)}
        found = Counter(name_of(body) for queue in bodies(store).values() for body in queue)
        assert max(found.values()) == 1, "committed twice"
        assert set(found) == {body for body in stored if not body.startswith(b"r")}
        sent = [line for diary in diaries.iterdir() for line in diary.read_bytes().split(b"\n")]
        assert set(filter(None, sent)) <= stored
        assert len(set(ops(store))) == len(ops(store)), "no transaction is decided twice"
    assert verify(path).ok
    return len(found)


def kill_some(nursery, path, diaries, seed, rounds):
    sys.stdout.write(f"PYROCKET_SEED={SEED}, this part: {seed}\n")
    rng, committed = random.Random(seed), 0
    for round_ in range(rounds):
        run_and_kill(nursery, path, diaries, rng, round_)
        if round_ % 2 or round_ == rounds - 1:
            committed = check(path, diaries)
    sys.stdout.write(f"{rounds * len(GROUPS)} kills, {committed} committed\n")
    assert committed > 3 * rounds


def test_each_message_of_killed_producers_is_committed_once_or_never(nursery, path, diaries):
    kill_some(nursery, path, diaries, SEED, 2)


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(5))
def test_each_message_of_producers_killed_many_times_is_committed_once_or_never(
    nursery, path, diaries, part
):
    kill_some(nursery, path, diaries, SEED + part, 20)
