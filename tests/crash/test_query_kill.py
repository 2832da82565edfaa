"""A streaming query killed with SIGKILL, JVM, planner and workers at once, at random moments.

Its sink writes each micro-batch exactly once if the source gives a replayed one the same rows.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyrocket import Message, Store

JOB = Path(__file__).with_name("streaming_job.py")
TOPIC = "t"

pytestmark = [pytest.mark.spark, pytest.mark.crash]


class Job:
    """The query of `streaming_job.py` on one store and one checkpoint."""

    def __init__(self, folder):
        self._folder = folder

    def start(self, mode):
        command = [sys.executable, JOB, self._folder / "store", TOPIC, self._folder, mode]
        log = (self._folder / "job.log").open("ab")
        with log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def batches(self):
        folder = self._folder / "checkpoint" / "commits"
        return sum(path.name.isdigit() for path in folder.glob("*")) if folder.exists() else 0

    def output(self, spark):
        rows = spark.read.parquet(str(self._folder / "out")).collect()
        return sorted((row.queueId, row.queueOffset, row.body) for row in rows)


def kill(process):
    """Kill the whole session of a process: nothing of it gets to clean up."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def append(store, count, first):
    for number in range(first, first + count):
        store.append(Message(topic=TOPIC, body=str(number).encode()))


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the query made no progress"
        time.sleep(0.02)


def topic_rows(store):
    rows = []
    for queue, offsets in store.offsets(TOPIC).items():
        columns = ["queueOffset", "bodyText"]
        for batch in store.scan(TOPIC, queue, offsets.minimum, offsets.maximum, columns):
            pairs = zip(batch[0].to_pylist(), batch[1].to_pylist(), strict=True)
            rows += [(queue, offset, body) for offset, body in pairs]
    return sorted(rows)


# Twenty kills in four parts, each of which can be run again alone.
HEAVY = [pytest.param(5, id=f"part{part}", marks=pytest.mark.heavy) for part in range(4)]


@pytest.mark.parametrize("kills", [1, *HEAVY])
def test_a_killed_query_writes_every_message_exactly_once(spark, tmp_path, kills):
    seed = int(os.environ.get("PYROCKET_SEED", random.randrange(1 << 32)))
    sys.stdout.write(f"PYROCKET_SEED={seed}\n")
    dice = random.Random(seed)
    job = Job(tmp_path)
    with Store.open(tmp_path / "store", create=True) as store:
        store.create_topic(TOPIC)
        sent = 0
        for _ in range(kills):
            process = job.start("forever")
            try:
                before = job.batches()
                append(store, 2_000, sent)
                sent += 2_000
                some = dice.randrange(1, 4)
                wait_for(lambda before=before, some=some: job.batches() >= before + some, 120)
                time.sleep(dice.random() * 0.4)
            finally:
                kill(process)
        assert job.start("once").wait(180) == 0, (tmp_path / "job.log").read_text()[-3000:]
        expected = topic_rows(store)
    assert len(expected) == sent
    assert job.output(spark) == expected
