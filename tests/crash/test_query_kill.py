"""A streaming query is killed with SIGKILL at random moments: JVM, planner and workers at once.
Messages are appended all the time. Some kills happen before the first commit of a run: during its
start, its first micro-batch, or the replay of the previous run's last batch. The query's sink
writes each micro-batch exactly once if the source returns the same rows in a replay.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from crash.seeds import SEED
from pyrocket import Message, Store
from support.rocketmq_cluster import rocketmq

JOB = Path(__file__).with_name("streaming_job.py")
TOPIC = "t"
AT_ONCE, AT_A_TIME, PAUSE_SECONDS = 800, 5, 0.02
"""The numbers of messages appended during a run: first two micro-batches, then a few at
intervals.
"""

PATIENCE_SECONDS, KILLS = 300, 5

START_SECONDS = 12
"""The approximate time until a run's first commit; kills in this time affect every step before the
commit.
"""

pytestmark = [pytest.mark.spark, pytest.mark.crash]


class Job:
    """The query of `streaming_job.py`, on one target and one checkpoint."""

    def __init__(self, folder, *target):
        self._folder, self._target = folder, target

    def start(self, mode):
        command = [sys.executable, JOB, *self._target, TOPIC, self._folder, mode]
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
    """Kill all processes in the session of a process, without any clean-up."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Feed:
    """Appends numbered messages in a thread while the block runs; `sent` is the number of
    messages.
    """

    def __init__(self, store):
        self._store, self.sent = store, 0

    @contextmanager
    def running(self):
        """Append a few hundred messages at once, then a few at intervals."""
        ended = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            appending = pool.submit(self._append_until, ended)
            try:
                yield
            finally:
                ended.set()
            appending.result()

    def _append_until(self, ended):
        self._append(AT_ONCE)
        while not ended.wait(PAUSE_SECONDS):
            self._append(AT_A_TIME)

    def _append(self, count):
        for _ in range(count):
            self._store.append(Message(topic=TOPIC, body=str(self.sent).encode()))
            self.sent += 1


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


def wait_for_moment(job, dice):
    """Wait for some micro-batches of this run, or for a random time."""
    before, some = job.batches(), dice.randrange(4)
    if some:
        wait_for(lambda: job.batches() >= before + some, PATIENCE_SECONDS)
        time.sleep(dice.random() * 0.4)
    else:
        time.sleep(dice.random() * START_SECONDS)
    sys.stdout.write(f"killed after {job.batches() - before} commits, {some} were expected\n")


@contextmanager
def at_path(folder):
    """Yield a store, and the option that reads it."""
    with Store.open(folder / "store", create=True) as store:
        yield store, ("path", str(folder / "store"))


@contextmanager
def in_a_cluster(folder):
    """Yield the store of a broker of a cluster of RocketMQ, and the option that reads it."""
    with rocketmq(folder / "rocketmq") as made:
        yield made.brokers[0].store, ("namesrv", ";".join(made.addresses))


# Twenty kills of a query by path, a hundred of one that reads a cluster; five kills a test.
HEAVY = [
    pytest.param(target, part, id=f"{target.__name__}-{part}", marks=pytest.mark.heavy)
    for target, parts in ((at_path, 4), (in_a_cluster, 20))
    for part in range(parts)
]


@pytest.mark.parametrize(("target", "part"), HEAVY)
def test_a_killed_query_writes_every_message_exactly_once(spark, tmp_path, target, part):
    sys.stdout.write(f"PYROCKET_SEED={SEED}\n")
    dice = random.Random(SEED * 100 + part)
    with target(tmp_path) as (store, option):
        job, feed = Job(tmp_path, *option), Feed(store)
        store.topics.create(TOPIC)
        for _ in range(KILLS):
            process = job.start("forever")
            with feed.running():
                try:
                    wait_for_moment(job, dice)
                finally:
                    kill(process)
        assert job.start("once").wait(PATIENCE_SECONDS) == 0, (tmp_path / "job.log").read_text()[
            -3000:
        ]
        expected = topic_rows(store)
    assert len(expected) == feed.sent
    assert job.output(spark) == expected
