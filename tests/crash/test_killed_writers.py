"""kill -9 at random: nothing acknowledged is lost, nothing is torn, nothing comes twice."""

import os
import random
import signal
import sys
import time

import pytest
from crash.children import produce
from crash.nursery import wait_for
from pyrocket import Store, StoreConfig
from stores import scan

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]

SIZES = StoreConfig(log_file_bytes=64 * 1024, queue_file_entries=100)

SEED = int(os.environ.get("PYROCKET_SEED", "0")) or random.randrange(1, 10**6)
PRODUCERS = 3


def kill_some(nursery, path, diaries, seed, rounds):
    """Start producers, kill them at a random moment, look, again and again in one store."""
    sys.stdout.write(f"PYROCKET_SEED={SEED}, this part: {seed}\n")
    rng = random.Random(seed)
    seen, next_offsets = {}, {0: 0, 1: 0}
    for round_ in range(rounds):
        names = [f"{round_}-{n}" for n in range(PRODUCERS)]
        children = [
            nursery.start(
                produce,
                path=path,
                diaries=diaries,
                producer=name,
                count=10**6,
                seed=rng.randrange(10**9),
            )
            for name in names
        ]
        wait_for_work(diaries, names[: rng.choice((1, 1, 2, 3))])
        time.sleep(rng.uniform(0, 0.1))
        for child in rng.sample(children, len(children)):
            os.kill(child, signal.SIGKILL)
            time.sleep(rng.choice((0, 0, 0.005)))
        for child in children:
            assert nursery.wait(child) == -signal.SIGKILL
        check_round(path, diaries, seen, next_offsets, recover=round_ % 2 == 1)
    assert sum(map(len, seen.values())) > 10 * rounds


def wait_for_work(diaries, names):
    for name in names:
        while not wait_for(diaries / name).stat().st_size:
            time.sleep(0.001)


def check_round(path, diaries, seen, next_offsets, *, recover):
    if recover:
        Store.open(path).close(clean=False)
    with Store.open(path, read_only=True) as reader:
        assert reader.epoch == 0, "the machine stayed up: nothing to recover"
        for queue_id in next_offsets:
            rows = scan(reader, "t", queue_id, next_offsets[queue_id])
            first = next_offsets[queue_id]
            assert [offset for offset, _ in rows] == list(range(first, first + len(rows)))
            next_offsets[queue_id] += len(rows)
            for _, body in rows:
                producer, number, _ = body.decode().split(":")
                seen.setdefault((producer, queue_id), []).append(int(number))
    if not recover:
        return  # What is published but not yet dispatched shows after the next writer's turn.
    for diary in diaries.iterdir():
        producer = diary.name
        numbers = [seen.get((producer, queue_id), []) for queue_id in (0, 1)]
        for queue_id, found in enumerate(numbers):
            assert found == list(range(queue_id, 2 * len(found), 2)), "once each, in order"
        acknowledged = int((diary.read_text().split() or ["0"])[-1])
        assert sum(map(len, numbers)) >= acknowledged, f"{producer} lost what was acknowledged"


@pytest.mark.parametrize("path", [SIZES], indirect=True, ids=["64K"])
def test_twenty_rounds_of_killed_writers(nursery, path, diaries):
    kill_some(nursery, path, diaries, SEED, 20)


@pytest.mark.heavy
@pytest.mark.parametrize("path", [SIZES], indirect=True, ids=["64K"])
@pytest.mark.parametrize("part", range(25))
def test_five_hundred_rounds_of_killed_writers(nursery, path, diaries, part):
    """Resumable: run the parts that are left (`-k`), with PYROCKET_SEED of the first run."""
    kill_some(nursery, path, diaries, SEED * 100 + part, 20)
