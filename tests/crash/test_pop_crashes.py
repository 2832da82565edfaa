"""After power losses and kills, acked messages stay acked and unacked messages are delivered
again.
"""

import copy
import os
import random
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from crash.children import consume_for_ever
from crash.disk_model import DATA_MODES, NAME_MODES, Disk, materialise
from crash.nursery import wait_for_lines
from crash.power_loss import NoPower, _lose_what_goes_by_itself
from crash.recorder import Recorder
from pyrocket import Store
from pyrocket.broker.pop.pop import Pop
from support.pops import INVISIBLE_MS, POP_CRASHES, at_once, sent
from support.stores import SMALL, FakeClock

pytestmark = pytest.mark.crash


@dataclass
class Promised:
    """The acknowledged calls: messages sent, deliveries by body, and acks. Messages in `tried` may
    be acked.
    """

    sent: set = field(default_factory=set)
    deliveries: dict = field(default_factory=dict)
    acked: set = field(default_factory=set)
    tried: set = field(default_factory=set)


def consume(recorder, base, seed):
    """Send, receive, ack and fail messages; return the moments at which calls were acknowledged."""
    rng, clock, promised = random.Random(seed), FakeClock(), Promised()
    moments = []

    def note():
        moments.append((len(recorder.ops), copy.deepcopy(promised)))

    store = Store.open(
        base / "store", create=True, clock=clock, config=replace(SMALL, flush="sync")
    )
    store.topics.create("t", read_queues=1, write_queues=1)
    store.groups.create("g")
    store.groups.update("g", retry_max_times=3)
    pop = Pop(store, at_once(store), POP_CRASHES)
    for _ in range(12):
        promised.sent |= {*sent(store, 3, first=len(promised.sent))}
        note()
        received = pop.receive("g", "t", max_messages=4, invisible_ms=INVISIBLE_MS)
        received.stored.result()
        for one in received.messages:
            promised.deliveries[one.message.body] = one.attempt
        note()
        chosen = [one for one in received.messages if rng.random() < 0.6]
        promised.tried |= {one.message.body for one in chosen}
        note()
        pop.ack("g", "t", [one.handle for one in chosen]).stored.result()
        promised.acked |= {one.message.body for one in chosen}
        note()
        clock.now += rng.choice([0, INVISIBLE_MS])
        store.deliver_due()
        pop.sweep()
    store.close()
    return moments


def check(path, promised):
    """Open the store like the next broker, and receive all remaining messages."""
    clock = FakeClock(1_700_000_000_000 + 24 * 3_600_000)
    with Store.open(path, clock=clock) as store:
        if not promised.sent:
            return
        pop, found = Pop(store, at_once(store), POP_CRASHES), {}
        for _ in range(30):
            clock.now += INVISIBLE_MS
            store.deliver_due()
            pop.sweep()
            while messages := pop.receive("g", "t").messages:
                for one in messages:
                    found.setdefault(one.message.body, one.attempt)
                pop.ack("g", "t", [one.handle for one in messages])
        dead = "%DLQ%g" in store.topics.all() and {one.body for one in store.messages("%DLQ%g")}
        assert not promised.acked & found.keys(), "an ack that was answered is lost"
        ended = found.keys() | promised.tried | (dead or set())
        assert promised.sent <= ended, "a message was skipped"
        for body, attempt in found.items():
            assert attempt > promised.deliveries.get(body, 0), body


def power_losses(folder, seed, share):
    """Check the disk states that a power loss may leave; return their number."""
    base = folder / "live"
    materialise({}, base)
    with Recorder(base) as recorder:
        moments = consume(recorder, base, seed)
    shutil.rmtree(base)
    disk, promised, count = Disk({}), Promised(), 0
    rng = random.Random(seed)
    for done, op in enumerate(recorder.ops):
        while moments and moments[0][0] <= done:
            promised = moments.pop(0)[1]
        disk.apply(op)
        if rng.random() < share:
            image = disk.crash(rng, rng.choice(DATA_MODES), rng.choice(NAME_MODES))
            _lose_what_goes_by_itself(image, rng)
            if "store/pyrocket/store.json" in image and "store/config/topics.json" in image:
                materialise(image, folder / "after")
                check(folder / "after" / "store", promised)
                shutil.rmtree(folder / "after")
                count += 1
    return count


@pytest.fixture
def folder():
    place = Path(
        tempfile.mkdtemp(prefix="pyrocket-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    )
    yield place
    shutil.rmtree(place)


def test_acks_survive_power_losses_at_some_points(folder):
    with NoPower():
        assert power_losses(folder, 1, 0.03) > 10


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2, 12))
def test_acks_survive_a_power_loss_at_any_point(folder, seed):
    with NoPower():
        assert power_losses(folder, seed, 0.5) > 300


def follow(diary, promised):
    for line in diary.read_bytes().split(b"\n")[:-1]:
        kind, body, *attempt = line.split(b" ")
        if kind == b"got":
            assert body not in promised.acked, "an ack that was answered is lost"
            assert int(attempt[0]) > promised.deliveries.get(body, 0)
            promised.deliveries[body] = int(attempt[0])
        else:
            {b"sent": promised.sent, b"tried": promised.tried, b"acked": promised.acked}[kind].add(
                body
            )


def kill_consumers(nursery, folder, count):
    path = folder / "consumed"
    with Store.open(path, create=True, config=SMALL, clock=FakeClock()) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.groups.create("g")
        store.groups.update("g", retry_max_times=3)
    promised, rng = Promised(), random.Random(7)
    for seed in range(1, count + 1):
        diary = folder / f"diary{seed}"
        process = nursery.start(consume_for_ever, path=path, diary=diary, seed=seed)
        wait_for_lines(diary, rng.randrange(4, 60))
        nursery.kill(process)
        follow(diary, promised)
    check(path, promised)
    return promised


def test_after_kills_no_message_is_lost_and_no_acked_message_is_delivered(nursery, tmp_path):
    promised = kill_consumers(nursery, tmp_path, 5)
    assert len(promised.acked) > 5


@pytest.mark.heavy
def test_after_a_hundred_kills_no_message_is_lost_and_no_acked_message_is_delivered(
    nursery, tmp_path
):
    kill_consumers(nursery, tmp_path, 100)
