"""The processes of a query from topic to topic are killed in every window; the output is
exactly-once. `pauses/windows.py` lists the windows. In a window, the paused process, the JVM, or
all processes are killed; some kills happen at a random moment. Each message arrives once, and
messages with the same key arrive in order.
"""

import random
import sys
import time
from collections import Counter

import pytest
from crash.fire import Pauses, Pipe, kill_process
from crash.pauses.windows import RARE, WINDOWS
from crash.pipe_job import ROWS_PER_BATCH
from crash.seeds import SEED

pytestmark = [pytest.mark.spark, pytest.mark.crash]

PATIENCE = 180
"""Maximum seconds until a window is reached; a job's first micro-batch takes ten."""

BATCHES_TO_RARE = 70
"""The ledger is saved after every 64 published micro-batches."""

ANYWHEN = "at any moment"


class Fire:
    """A sequence of kills that is determined by the seed."""

    def __init__(self, pipe, pauses, dice):
        self._pipe, self._pauses, self._dice = pipe, pauses, dice
        self._job = None
        self.hits = Counter()

    def kill(self, window, victim):
        """Send messages, wait until a process is paused in the window, and kill the victim."""
        if self._job is None or not self._job.alive():
            self._job = self._pipe.start("forever", self._pauses)
        held = self._hold(window)
        assert held is not None, f"no process reached the window: {window}"
        self.hits[window, victim] += 1
        if victim == "process":
            kill_process(held)
            self._pauses.clear()
        else:
            self._end_job(jvm_first=victim == "jvm")
        self._pipe.look()

    def _hold(self, window):
        rare = window in RARE
        self._pipe.feed(
            BATCHES_TO_RARE * ROWS_PER_BATCH if rare else self._dice.randrange(150, 500)
        )
        if window == ANYWHEN:
            before = self._pipe.batches()
            until = time.monotonic() + PATIENCE
            while self._pipe.batches() == before and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(self._dice.random())
            workers = self._job.workers()
            return self._dice.choice(workers) if workers else None
        self._pauses.plan(window)
        return self._pauses.hit(PATIENCE)

    def _end_job(self, *, jvm_first):
        if jvm_first:
            self._job.kill_jvm()
            # The JVM's Python processes, including the paused one, survive for a moment.
            self._pauses.go()
            time.sleep(self._dice.random())
        self._job.kill()
        self._job = None
        self._pauses.clear()


def under_fire(folder, kills, seed):
    """Kill the victim of each (victim, window); return the number of kills of each pair."""
    sys.stdout.write(f"PYROCKET_SEED={SEED}, this run: {seed}\n")
    pipe, pauses = Pipe(folder), Pauses(folder / "pauses")
    fire = Fire(pipe, pauses, random.Random(seed))
    try:
        for victim, window in kills:
            sys.stdout.write(f"{victim}: {window}\n")
            fire.kill(window, victim)
        pipe.finish()
    except BaseException:
        sys.stdout.write(pipe.report())
        raise
    finally:
        pipe.stop()
    return fire.hits


def test_a_batch_is_published_once_although_a_process_is_killed(tmp_path):
    """`-m heavy` kills many more."""
    assert under_fire(tmp_path, [("process", "records in part")], 0).total() == 1


PARTS = 8
VICTIMS = [*["process"] * 18, *["jvm"] * 4, *["session"] * 4]
"""Return the kills of one part; the eight parts have 208 kills, 64 of them of the JVM."""


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(PARTS))
def test_batches_are_published_once_under_many_kills(tmp_path, part):
    """After a failure, run the remaining parts with `-k`."""
    seed = SEED * 100 + part
    dice = random.Random(seed)
    victims = dice.sample(VICTIMS, len(VICTIMS))
    windows = dice.sample([*WINDOWS, ANYWHEN] * 2, len(VICTIMS))
    hits = under_fire(tmp_path, list(zip(victims, windows, strict=True)), seed)
    sys.stdout.write("".join(f"{count} {hit}\n" for hit, count in sorted(hits.items())))
    assert hits.total() == len(VICTIMS)
