"""Topics to read and write, and streams that run until nothing is left."""

import glob
import json
import os
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyrocket import QueueOffsets, Store, TopicConfig
from pyrocket.errors import TopicNotFoundError
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import Subscription
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.source.stream_planner import next_offset, planned_ranges
from pyspark_pyrocket.transport.path import forget


@dataclass
class Box:
    """One topic of one store, and what tests do with it besides Spark."""

    path: str
    topic: str = "t"

    @property
    def options(self):
        return {"path": self.path, "topic": self.topic}

    def create(self, queues=4):
        with Store.open(self.path, create=True) as store:
            store.topics.create(self.topic, read_queues=queues, write_queues=queues)
        return self

    def grow(self, queues):
        with Store.open(self.path) as store:
            store.topics.update(self.topic, read_queues=queues, write_queues=queues)

    def send(self, *bodies, queue=None, **columns):
        """Append the bodies to one queue, or spread over all."""
        arrays = {"body": pa.array(bodies), **columns}
        if queue is not None:
            arrays["queueId"] = pa.array([queue] * len(bodies), pa.int32())
        with Store.open(self.path, create=True) as store:
            store.append_batch(pa.record_batch(arrays), topic=self.topic)

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
        """Run with Trigger.AvailableNow to the end; return the rows of each micro-batch."""
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
        """The source's line of a checkpointed offset."""
        return (self.folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[2]

    def forget_commit(self, batch):
        """Make it look as if the driver had died before this batch was committed."""
        for name in (str(batch), f".{batch}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)


class Numbers:
    """What the planner asks of a store: bounds of queues and who they belong to.

    times: topic and queue → the store times of its messages, from offset 0 on.
    commits: group and topic → queue → offset. left: what queues have that are not in the bounds.
    Its log is never an older copy: what marks are for is tested over real stores.
    """

    def __init__(self, **topics):
        self.path, self.uuid, self.epoch, self.broker_name = Path("/s"), "uuid-1", 0, "broker-a"
        self.bounds = {
            name: {queue: QueueOffsets(*limits) for queue, limits in queues.items()}
            for name, queues in topics.items()
        }
        self.ids = {name: f"id-{name}" for name in topics}
        self.perm, self.perms = 6, {}
        self.recovery_is_interrupted = False
        self.history = self.raw = self
        self.topics = SimpleNamespace(all=self._topics, get=self._missing)
        self.cuts, self.left, self.times, self.commits = {}, {}, {}, {}
        self.clock = 1_000_000
        self.groups = SimpleNamespace(
            committed=lambda group, topic: self.commits.get((group, topic), {})
        )

    def _topics(self):
        return {
            n: TopicConfig(n, 4, 4, self.perms.get(n, self.perm), self.ids[n]) for n in self.bounds
        }

    def _missing(self, name):
        raise TopicNotFoundError(f"there is no topic {name!r}.")

    def offsets(self, topic):
        return self.bounds[topic]

    def queue_range(self, topic, queue_id):
        limits = self.bounds.get(topic, {}).get(queue_id)
        return limits or self.left.get((topic, queue_id), QueueOffsets(0, 0))

    def offset_by_time(self, topic, queue_id, timestamp_ms):
        limits = self.bounds[topic][queue_id]
        times = self.times.get((topic, queue_id), [0] * limits.maximum)
        return bisect_left(times, timestamp_ms, lo=limits.minimum)

    def now(self):
        return self.clock

    def mark(self, offsets):
        return None

    def cut_since(self, epoch, topic, queue_id):
        return self.cuts.get((topic, queue_id)) if epoch < self.epoch else None

    def grow(self, topic, queue, maximum, minimum=0):
        self.bounds.setdefault(topic, {})[queue] = QueueOffsets(minimum, maximum)
        self.ids.setdefault(topic, f"id-{topic}")

    def delete(self, topic, ended=None):
        """Delete a topic; `ended` says where its queues had come to."""
        for queue, limits in self.bounds.pop(topic).items():
            end = limits.maximum if ended is None else ended
            self.left[topic, queue] = QueueOffsets(end, end)
        del self.ids[topic]

    def step(self, start, asked=None, **limits):
        """One micro-batch, as Spark plans it: the end, and what its tasks read."""
        end = next_offset(
            self,
            asked or ReadOptions(path="/s", subscription=Subscription(("t",))),
            start,
            **limits,
        )
        return (start, []) if end is None else (through_spark(end), self.read(start, end))

    @staticmethod
    def read(start, end):
        """What the tasks of a micro-batch read."""
        ranges = sorted(planned_ranges(start, through_spark(end)))
        return [(r.topic, r.queue_id, r.start, r.end) for r in ranges if r.start < r.end]


def through_spark(offset):
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))


@pytest.fixture
def numbers():
    """Makes stores that exist as numbers only."""
    return Numbers


@pytest.fixture
def box(tmp_path):
    """A topic that does not exist yet."""
    return Box(str(tmp_path / "store"))


@pytest.fixture
def stream(spark, box, tmp_path):
    """A stream over the box, from the first message on."""
    return Stream(spark, tmp_path, {**box.options, "startingOffsets": "earliest"})


@pytest.fixture
def files(box, tmp_path):
    """Four messages in two queues; micro-batch 0 has read two, 1 the others, and both are over."""
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
    """Counts the Spark jobs that a block has started."""
    group = f"jobs-{os.urandom(4).hex()}"
    spark.sparkContext.setJobGroup(group, "counted")
    yield lambda: len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    for name in ("spark.jobGroup.id", "spark.job.description"):
        spark.sparkContext.setLocalProperty(name, None)
