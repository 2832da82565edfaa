"""A broker is killed while consumers receive, ack, nack and forward messages: no message is
lost.
"""

import random
import signal
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from pyrocket import Store
from pyrocket.broker.broker import Broker
from pyrocket.values.admin import Backoff
from support.broker_groups import CONFIG, INVISIBLE_MS, consume_until_death
from support.pops import handles_of

pytestmark = pytest.mark.crash

RETRIES = 5
DLQ = "%DLQ%g"


@dataclass
class Known:
    """The messages as the clients know them."""

    sent: set = field(default_factory=set)
    attempts: Counter = field(default_factory=Counter)
    acked: set = field(default_factory=set)
    buried: set = field(default_factory=set)
    tried: dict = field(default_factory=lambda: {b"try-ack": set(), b"try-bury": set()})

    def read(self, diary):
        """Read the diary of one process."""
        if not diary.exists():
            return
        # Within one process, a thread may record a receive late.
        ended, attempts = self.acked | self.buried, Counter(self.attempts)
        for line in diary.read_bytes().split(b"\n")[:-1]:
            kind, body, *attempt = line.split(b" ")
            if kind == b"got":
                assert body not in ended, f"{body} is received after its ack or dead letter"
                assert int(attempt[0]) > attempts[body], f"{body} has lost its attempts"
                self.attempts[body] = max(self.attempts[body], int(attempt[0]))
            elif kind in self.tried:
                self.tried[kind].add(body)
            elif kind in (b"sent", b"ack", b"bury"):
                {b"sent": self.sent, b"ack": self.acked, b"bury": self.buried}[kind].add(body)


def make(path):
    with Store.open(path, create=True, config=CONFIG) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        store.groups.create("g")
        store.groups.update("g", retry_max_times=RETRIES, backoff=Backoff((1,)))


def drain(path):
    """Return the attempts of the remaining messages, and those of the dead letters, by body."""
    left, quiet = {}, 0
    with closing(Broker(Store.open(path, config=CONFIG))) as broker:
        while quiet < 10:
            broker.pop.sweep()
            received = broker.pop.receive("g", "t", invisible_ms=60_000)
            for one in received.messages:
                assert one.message.body not in left, "received twice"
                left[one.message.body] = one.attempt
            assert all(broker.pop.ack("g", "t", handles_of(received.messages)).valid)
            waits = broker.pop.in_flight("g") or received.messages
            quiet = 0 if waits else quiet + 1
            time.sleep(INVISIBLE_MS / 1000 / 5)
        has_dead = DLQ in broker.store.topics.all()
        found = broker.store.messages(DLQ) if has_dead else ()
        letters = [(one.body, one.reconsume_times) for one in found]
    twice = [body for body, count in Counter(body for body, _ in letters).items() if count > 1]
    assert not twice, f"{twice} are dead letters twice"
    dead = dict(letters)
    return left, dead


def check(known, left, dead):
    assert not left.keys() & dead.keys(), "a dead letter is received as a message"
    assert not known.acked & (left.keys() | dead.keys()), "an acknowledged ack is lost"
    assert known.buried <= dead.keys(), "an acknowledged dead letter is lost"
    ended = known.acked | left.keys() | dead.keys() | known.tried[b"try-ack"]
    assert known.sent <= ended, f"messages are lost: {known.sent - ended}"
    for body, attempt in left.items():
        assert known.attempts[body] < attempt <= RETRIES + 1
    for body, attempts in dead.items():
        assert attempts >= known.attempts[body]
        assert attempts == RETRIES + 1 or body in known.tried[b"try-bury"]


def kill_groups(nursery, folder, count):
    path, rng, known = folder / "store", random.Random(count), Known()
    make(path)
    for seed in range(1, count + 1):
        diary = folder / f"diary{seed}"
        step = rng.choice([rng.randrange(1, 60), rng.randrange(60, 1500)])
        half = rng.random() < 0.5
        given = {"path": path, "diary": diary, "seed": seed, "step": step, "half": half}
        assert nursery.run(consume_until_death, **given) == -signal.SIGKILL
        known.read(diary)
    left, dead = drain(path)
    check(known, left, dead)
    return known, dead


def test_each_message_is_acked_or_dead_once_after_kills(nursery, tmp_path):
    known, _ = kill_groups(nursery, tmp_path, 5)
    assert known.acked
    assert len(known.sent) > 30


@pytest.mark.heavy
def test_each_message_is_acked_or_dead_once_after_a_hundred_kills(nursery, tmp_path):
    known, dead = kill_groups(nursery, tmp_path, 100)
    assert len(dead) > 50
    assert max(known.attempts.values()) == RETRIES + 1
