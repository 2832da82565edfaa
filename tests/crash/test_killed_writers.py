"""Writers are killed at random moments: no acknowledged message is lost, torn or stored twice."""

import os
import random
import signal
import sys
import time

import pytest
from crash.children import produce, produce_in_threads
from crash.follower import Follower
from crash.nursery import wait_for
from crash.seeds import SEED
from pyrocket import Store, StoreConfig
from support.stores import scan

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]

SIZES = StoreConfig(
    log_file_bytes=64 * 1024, queue_file_entries=100, index_slots=1000, index_items=4000
)

PRODUCERS, ROUNDS = 3, 7
FEW = 4


def kill_some(nursery, path, diaries, seed, rounds):
    """Repeatedly start producers in one store, kill them at a random moment, and check the store.

    Two producers are processes with one thread, one has two threads; a reader reads all the time.
    """
    sys.stdout.write(f"PYROCKET_SEED={SEED}, this part: {seed}\n")
    rng = random.Random(seed)
    seen, next_offsets = {}, {0: 0, 1: 0}
    follower = Follower(path)
    follower.start()
    try:
        for round_ in range(rounds):
            kill_a_few(nursery, path, diaries, rng, round_)
            check_round(path, diaries, seen, next_offsets, recover=round_ % 2 == 1)
    finally:
        followed = follower.stop()
    assert sum(map(len, seen.values())) > 10 * rounds
    assert {queue_id: len(rows) for queue_id, rows in followed.items()} == next_offsets
    sys.stdout.write(f"{rounds * PRODUCERS} kills, {sum(next_offsets.values())} messages\n")


def kill_a_few(nursery, path, diaries, rng, round_):
    works = {f"{round_}-{n}": produce for n in range(PRODUCERS - 1)}
    works[f"{round_}-t"] = produce_in_threads
    children = [
        nursery.start(
            work,
            path=path,
            diaries=diaries,
            producer=name,
            count=10**6,
            seed=rng.randrange(10**9),
        )
        for name, work in works.items()
    ]
    diary_names = [*list(works)[:-1], f"{round_}-t.0"]
    wait_for_work(diaries, diary_names[: rng.choice((1, 1, 2, 3))])
    time.sleep(rng.uniform(0, 0.1))
    for child in rng.sample(children, len(children)):
        os.kill(child, signal.SIGKILL)
        time.sleep(rng.choice((0, 0, 0.005)))
    for child in children:
        assert nursery.wait(child) == -signal.SIGKILL


def wait_for_work(diaries, names):
    for name in names:
        while not wait_for(diaries / name).stat().st_size:
            time.sleep(0.001)


def check_round(path, diaries, seen, next_offsets, *, recover):
    if recover:
        Store.open(path).close(clean=False)
    with Store.open(path, read_only=True) as reader:
        assert reader.history.epoch == 0, "only processes were killed: nothing to recover"
        for queue_id in next_offsets:
            rows = scan(reader, "t", queue_id, next_offsets[queue_id])
            first = next_offsets[queue_id]
            assert [offset for offset, _ in rows] == list(range(first, first + len(rows)))
            next_offsets[queue_id] += len(rows)
            for _, body in rows:
                producer, number, _ = body.decode().split(":")
                seen.setdefault((producer, queue_id), []).append(int(number))
    if not recover:
        return  # Published but undispatched messages become visible after the next writer's append.
    for diary in diaries.iterdir():
        producer = diary.name
        numbers = [seen.get((producer, queue_id), []) for queue_id in (0, 1)]
        for queue_id, found in enumerate(numbers):
            assert found == list(range(queue_id, 2 * len(found), 2)), "each message once, in order"
        acknowledged = int((diary.read_text().split() or ["0"])[-1])
        assert sum(map(len, numbers)) >= acknowledged, f"{producer} lost acknowledged messages"


@pytest.mark.parametrize("path", [SIZES], indirect=True, ids=["64K"])
def test_no_acknowledged_message_is_lost_by_a_few_kills(nursery, path, diaries):
    kill_some(nursery, path, diaries, SEED, FEW)


@pytest.mark.heavy
@pytest.mark.parametrize("path", [SIZES], indirect=True, ids=["64K"])
@pytest.mark.parametrize("part", range(25))
def test_no_acknowledged_message_is_lost_by_five_hundred_kills(nursery, path, diaries, part):
    """After a failure, run the remaining parts with `-k` and PYROCKET_SEED of the first run."""
    kill_some(nursery, path, diaries, SEED * 100 + part, ROUNDS)
