"""Topics to read and write, and streams that run until nothing is left."""

import glob
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyrocket import Client, Connection, RemoteAdmin, RemoteSink, Store
from pyspark_pyrocket.transport.path import forget
from support import over_endpoint
from support.broker_process import RestartableBroker
from support.queue_numbers import Numbers
from support.transports import disconnect


@dataclass
class Box:
    """One topic of one store, and operations on it without Spark.

    With an address, a broker has the store open; Spark and all writes of this class then use the
    broker.
    """

    path: str
    topic: str = "t"
    address: str = ""
    broker: RestartableBroker | None = None

    @property
    def target(self):
        """Return the option that selects the store."""
        return {"endpoint": self.address} if self.address else {"path": self.path}

    @property
    def options(self):
        return {**self.target, "topic": self.topic}

    def other(self, topic):
        """Return another topic of the same store."""
        return replace(self, topic=topic)

    @contextmanager
    def store(self, config=None):
        """Open the store for writing; its broker is stopped meanwhile."""
        if self.broker:
            self.broker.stop()
        try:
            with Store.open(self.path, create=True, config=config) as store:
                yield store
        finally:
            if self.broker:
                self.broker.start()

    def recreate(self, config):
        """Create the store with other file sizes."""
        if self.broker:
            self.broker.stop()
            shutil.rmtree(self.path)
        Store.open(self.path, create=True, config=config).close()
        if self.broker:
            self.broker.start()

    @contextmanager
    def client(self):
        client = Client(Connection(self.address))
        yield client
        client.close()

    def create(self, queues=4):
        counts = {"read_queues": queues, "write_queues": queues}
        if self.address:
            with self.client() as client:
                RemoteAdmin(client).topics.create(self.topic, **counts)
            return self
        with Store.open(self.path, create=True) as store:
            store.topics.create(self.topic, **counts)
        return self

    def grow(self, queues):
        counts = {"read_queues": queues, "write_queues": queues}
        if self.address:
            with self.client() as client:
                RemoteAdmin(client).topics.update(self.topic, **counts)
            return
        with Store.open(self.path) as store:
            store.topics.update(self.topic, **counts)

    def send(self, *bodies, queue=None, **columns):
        """Append the bodies to one queue, or distribute them over all queues."""
        arrays = {"body": pa.array(bodies), **columns}
        if queue is not None:
            arrays["queueId"] = pa.array([queue] * len(bodies), pa.int32())
        batch = pa.record_batch(arrays)
        if self.address:
            with self.client() as client:
                RemoteSink(client).append(batch, topic=self.topic)
            return
        with Store.open(self.path, create=True) as store:
            store.append_batch(batch, topic=self.topic)

    def read(self, *columns):
        """Return all messages as tuples, queue by queue."""
        rows = []
        with Store.open(self.path, read_only=True) as store:
            for queue, offsets in store.offsets(self.topic).items():
                wanted = (offsets.minimum, offsets.maximum, columns)
                for batch in store.scan(self.topic, queue, *wanted):
                    rows += zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
        return rows

    def bodies(self):
        return sorted(body for (body,) in self.read("body"))

    def rows(self):
        with Store.open(self.path, read_only=True) as store:
            if self.topic not in store.topics.all():
                return 0
            return sum(o.maximum - o.minimum for o in store.offsets(self.topic).values())


@dataclass
class Stream:
    """A query from topics to Parquet, whose sink is exactly-once."""

    spark: object
    folder: Path
    options: dict
    schema: str = "topic STRING, queueId INT, queueOffset BIGINT, body STRING"
    progress: list = field(default_factory=list)

    def start(self, **trigger):
        source = self.spark.readStream.format("pyrocket").options(**self.options)
        if self.schema:
            source = source.schema(self.schema)
        return (
            source.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start(str(self.folder / "out"))
        )

    def drain(self, **options):
        """Run with Trigger.AvailableNow until it ends; return the rows of each micro-batch."""
        self.options |= options
        query = self.start(availableNow=True)
        try:
            query.awaitTermination(120)
        finally:
            query.stop()
        self.progress = [json.loads(p.json) for p in query.recentProgress]
        return [p["numInputRows"] for p in self.progress]

    def output(self):
        frame = self.spark.read.parquet(str(self.folder / "out"))
        return sorted(tuple(row) for row in frame.collect())

    def bodies(self):
        return sorted(row[-1] for row in self.output())

    def batches(self, kind="offsets"):
        names = glob.glob(str(self.folder / "checkpoint" / kind / "[0-9]*"))
        return sorted(int(os.path.basename(name)) for name in names)

    def offset(self, batch):
        """Return the source's line of a checkpointed offset."""
        return (self.folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[2]

    def forget_commit(self, batch):
        """Simulate that the driver died before this batch was committed."""
        for name in (str(batch), f".{batch}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def numbers():
    """A class of simulated sources, whose queues have offsets and no messages."""
    return Numbers


def pytest_generate_tests(metafunc):
    """Run the tests that `support.over_endpoint` selects with both targets."""
    module, test = metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__
    if "box" in metafunc.fixturenames and over_endpoint.runs(module, test):
        targets = ["path", "endpoint"]
        heavy = test not in over_endpoint.QUICK
        targets[heavy] = pytest.param(targets[heavy], marks=pytest.mark.heavy)
        metafunc.parametrize("box", targets, indirect=True)


@pytest.fixture
def box(tmp_path, request):
    """A topic that does not exist yet; over `endpoint`, a broker of its own serves its store."""
    path = str(tmp_path / "store")
    if getattr(request, "param", "path") == "path":
        yield Box(path)
        return
    broker = RestartableBroker(path)
    yield Box(path, address=broker.address, broker=broker)
    broker.stop()
    disconnect()


@pytest.fixture
def stream(spark, box, tmp_path):
    """A stream that reads the box from its first message."""
    return Stream(spark, tmp_path, {**box.options, "startingOffsets": "earliest"})


@pytest.fixture
def files(box, tmp_path):
    """Four messages in two queues; micro-batches 0 and 1 have read two each, and are committed."""
    from support.spark_checkpoints import Files

    box.create(queues=2)
    box.send("a", "b", queue=0)
    made = Files(tmp_path / "checkpoint", box)
    made.plan()
    made.commit()
    box.send("c", "d", queue=1)
    made.plan()
    made.commit()
    yield made
    forget(box.path)


@pytest.fixture
def jobs(spark):
    """Count the Spark jobs that a block starts."""
    group = f"jobs-{os.urandom(4).hex()}"
    spark.sparkContext.setJobGroup(group, "counted")
    yield lambda: len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    for name in ("spark.jobGroup.id", "spark.job.description"):
        spark.sparkContext.setLocalProperty(name, None)
