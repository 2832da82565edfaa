"""Restores at random times: with onDataLoss=skip every message of the store is read once."""

import json
import random
import shutil
from collections import Counter

import pytest
from pyrocket import Store
from pyrocket.testing import FileClock
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget
from support.shares import share
from support.stores import SMALL, batch, bodies, reboot

SCHEMA = default_columns(kafka=False, headers=False, text=False)
TOPICS, QUEUES = ("t", "u"), 2
ROUNDS, STEPS = 15, 30


class RestoredStore:
    """A store with one backup, and a query that reads a few messages at a time.

    The backup is always a prefix of the store, which was copied to it or restored from it.
    """

    def __init__(self, folder):
        self.path, self.copy = folder / "store", folder / "copy"
        with Store.open(self.path, create=True, config=SMALL) as store:
            for topic in TOPICS:
                store.topics.create(topic, read_queues=QUEUES, write_queues=QUEUES)
        self.now, self.sent, self.read = 1_700_000_000_000, 0, Counter()
        FileClock(self.path).set(self.now)
        self.offset = json.loads(json.dumps(self.query(5).initialOffset()))

    def query(self, rows):
        options = {"path": str(self.path), "subscribe": ",".join(TOPICS), "onDataLoss": "skip"}
        options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
        return DefaultSource(options).streamReader(schema=SCHEMA)

    def send(self, topic, queue, count, *, crashes=False):
        """Append messages of equal length, so that two branches of the log have equal offsets."""
        self.now += 1_000
        FileClock(self.path).set(self.now)
        numbers = [b"%09d" % (self.sent + n) for n in range(count)]
        self.sent += count
        store = Store.open(self.path)
        store.append_batch(batch(numbers, queue), topic=topic)
        store.close(clean=not crashes)
        if crashes:
            reboot(self.path)

    def plan(self, rows):
        """Return the end offset of a micro-batch of about this many rows."""
        limit = ReadMaxRows(rows) if rows else ReadAllAvailable()
        return json.loads(json.dumps(self.query(rows or 1).latestOffset(self.offset, limit)))

    def read_up_to(self, end):
        """Read a micro-batch, as Spark's tasks do."""
        if end == self.offset:
            return
        query = self.query(1)
        for task in query.partitions(self.offset, end):
            for part in query.read(task):
                self.read.update(part.column("body").to_pylist())
        self.offset = end

    def back_up(self):
        forget(str(self.path))
        shutil.rmtree(self.copy, ignore_errors=True)
        Store.open(self.path).close()
        shutil.copytree(self.path, self.copy)

    def restore(self):
        forget(str(self.path))
        shutil.rmtree(self.path)
        shutil.copytree(self.copy, self.path)
        self.now += 1_000
        FileClock(self.path).set(self.now)

    def bodies(self):
        with Store.open(self.path, read_only=True) as store:
            queues = [queue for topic in TOPICS for queue in bodies(store, topic).values()]
        return [body for queue in queues for body in queue]


@pytest.mark.parametrize("seed", share(range(ROUNDS), 2))
def test_every_message_is_read_once_through_restores_at_random_times(tmp_path, seed):
    chance = random.Random(seed)
    store = RestoredStore(tmp_path)
    store.back_up()
    for _ in range(STEPS):
        step = chance.choices(["send", "read", "replan", "back up", "restore"], [10, 5, 1, 1, 1])[0]
        if step == "send":
            place = chance.choice(TOPICS), chance.randrange(QUEUES)
            store.send(*place, chance.choice([1, 5, 30]), crashes=chance.random() < 0.1)
        elif step == "back up":
            store.back_up()
        elif step == "restore":
            store.restore()
        else:
            end = store.plan(chance.choice([3, 20, 0]))
            if step == "replan":
                store.restore()
            store.read_up_to(end)
    for _ in range(3):
        store.read_up_to(store.plan(0))
    forget(str(store.path))
    assert [body for body in store.bodies() if store.read[body] != 1] == []
    assert [body for body, times in store.read.items() if times > 1] == []
