"""A broker is killed while clients append, a query copies a topic, and Spark counts its rows."""

import random
import sys
import threading
from collections import Counter
from contextlib import contextmanager

import pyarrow as pa
import pytest
from crash.seeds import SEED
from crash.test_killed_broker import free_port
from pyrocket import Store
from pyrocket.remote.admin import RemoteAdmin
from pyrocket.remote.client import Client, Timeouts
from pyrocket.remote.connection import Connection
from pyrocket.remote.sink import RemoteSink
from pyrocket.tools.verify.verify import verify
from pyspark.errors import AnalysisException
from support.broker_process import start, wait_until_it_serves
from support.transports import disconnect

pytestmark = [pytest.mark.spark, pytest.mark.crash]

ROWS, APPENDERS = 20, 2


class Killable:
    """A broker that is killed and restarted on the same port."""

    def __init__(self, path):
        self.path, self.address = path, f"127.0.0.1:{free_port()}"
        self.start()

    def start(self):
        self.process = start(self.path, "--listen", self.address, "--log-level", "error")
        wait_until_it_serves(self.process, self.path)

    def kill(self):
        self.process.kill()
        self.process.communicate()
        self.start()

    def close(self):
        self.process.terminate()
        self.process.communicate()


class Load:
    """Threads that append, and one that counts rows with Spark, until the block ends."""

    def __init__(self, spark, options):
        self.spark, self.options, self.stopping = spark, options, threading.Event()
        self.refused = 0
        self.acknowledged, self.counts, self.errors = [set() for _ in range(APPENDERS)], [], []

    @contextmanager
    def running(self):
        threads = [threading.Thread(target=self.run, args=(self.count,))]
        threads += [
            threading.Thread(target=self.run, args=(lambda each=each: self.append(each),))
            for each in range(APPENDERS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()

    def run(self, work):
        try:
            work()
        except Exception as error:
            self.errors.append(error)

    def append(self, appender):
        client = Client(Connection(self.options["endpoint"]), Timeouts(total=60))
        sink, mine = RemoteSink(client), self.acknowledged[appender]
        for first in range(0, 10**9, ROWS):
            if self.stopping.is_set():
                break
            numbers = [f"{appender}-{number}" for number in range(first, first + ROWS)]
            sink.append(pa.record_batch({"body": numbers}), topic="source")
            mine.update(numbers)
            self.stopping.wait(0.05)
        client.close()

    def count(self):
        """Record two numbers for each read: the rows acknowledged before it, and the rows found. A
        read fails if the broker is unreachable for more than 8 s.
        """
        while not self.stopping.is_set():
            known = sum(map(len, self.acknowledged))
            frame = self.spark.read.format("pyrocket").options(**self.options, topic="source")
            try:
                found = frame.schema("body STRING").load().distinct().count()
            except AnalysisException as error:
                assert "TRANSPORT_FAILED" in str(error), error  # noqa: PT017
                self.refused += 1
                continue
            self.counts.append((known, found))
            self.stopping.wait(0.5)


def bodies(store, topic):
    """Return the number of messages in a topic by body."""
    found = Counter()
    for queue, at in store.offsets(topic).items():
        for batch in store.scan(topic, queue, at.minimum, at.maximum, ["body"]):
            found.update(body.decode() for body in batch.column(0).to_pylist())
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("kills", [1, 100])
def test_a_query_over_a_killed_broker_is_exactly_once(spark, tmp_path, kills):
    chance = random.Random(SEED)
    broker = Killable(tmp_path / "store")
    try:
        client = Client(Connection(broker.address))
        for topic in ("source", "copy"):
            RemoteAdmin(client).topics.create(topic, read_queues=2, write_queues=2)
        client.close()
        options = {"endpoint": broker.address}
        load = Load(spark, options)
        stream = spark.readStream.format("pyrocket").schema("body STRING")
        query = (
            stream.options(**options, topic="source", startingOffsets="earliest")
            .load()
            .writeStream.format("pyrocket")
            .options(**options, topic="copy", delivery="exactly-once")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        with load.running():
            for _ in range(kills):
                load.stopping.wait(chance.uniform(0.5, 3))
                assert query.isActive, query.exception()
                assert not load.errors, load.errors[0]
                broker.kill()
            load.stopping.wait(1)
        query.processAllAvailable()
        batches = len(query.recentProgress)
        query.stop()
        disconnect()
    finally:
        broker.close()
    assert not load.errors, load.errors[0]
    assert load.counts
    assert all(found >= known for known, found in load.counts)
    with Store.open(tmp_path / "store", read_only=True) as store:
        source, copy = bodies(store, "source"), bodies(store, "copy")
    acknowledged = set().union(*load.acknowledged)
    sys.stdout.write(
        f"{kills} kills: {len(acknowledged)} rows acknowledged, {source.total()} there,"
        f" {len(load.counts)} reads, {load.refused} failed, {batches} batches at the end\n"
    )
    assert acknowledged <= source.keys()
    assert copy == source
    assert set(verify(tmp_path / "store").counts) <= {"NOT_CLOSED"}
