"""A checkpoint of the first version can be continued by every later release.

`checkpoints/v1` was written by the release of commit de38b47: a query with Trigger.AvailableNow on
`subscribe=t,u` and `missingTopic=wait`, run three times, and the store that it read.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyrocket import Store
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.tools.checkpoints.files import read_checkpoint
from support.stores import message
from support.transports import options_of

SCHEMA = default_columns(kafka=False, headers=False, text=False)
BATCHES = [
    [
        *(("t", 0, 0, "t0-0"), ("t", 0, 1, "t0-1"), ("t", 0, 2, "t0-2")),
        *(("t", 1, 0, "t1-0"), ("t", 1, 1, "t1-1")),
    ],
    [("t", 0, 3, "t0-3"), ("u", 0, 0, "u0-0"), ("u", 0, 1, "u0-1")],
    [("t", 1, 2, "t1-2"), ("u", 0, 2, "u0-2")],
]
"""The messages that each micro-batch of the query has read."""


@dataclass
class Kept:
    """A checkpoint, and a query on its store."""

    path: Path
    options: dict

    def offset(self, batch):
        """Return the source's offset in a planned micro-batch, as Spark passes it to the source."""
        return json.loads((self.path / f"checkpoint/offsets/{batch}").read_text().splitlines()[2])

    def query(self):
        return DefaultSource(self.options).streamReader(schema=SCHEMA)

    def send(self, *messages):
        with Store.open(self.path / "store") as store:
            for each in messages:
                store.append(each)


@pytest.fixture(params=["path", "endpoint"])
def kept(tmp_path, request):
    """A copy of the checkpoint and of the store; a broker serves the store."""
    shutil.copytree(Path(__file__).parent / "checkpoints/v1", tmp_path, dirs_exist_ok=True)
    asked = {"subscribe": "t,u", "missingTopic": "wait", "startingOffsets": "earliest"}
    with options_of(request.param, tmp_path / "store") as options:
        yield Kept(tmp_path, {**options, **asked})


def rows(query, start, end):
    """Return the rows that the tasks of a micro-batch read, as (topic, queue, offset, body)."""
    columns = ("topic", "queueId", "queueOffset", "body")
    found = []
    for task in query.partitions(start, end):
        for batch in query.read(task):
            found += zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    return sorted((topic, queue, at, body.decode()) for topic, queue, at, body in found)


def test_a_checkpoint_of_version_1_can_be_read(kept):
    found = read_checkpoint(str(kept.path / "checkpoint"))
    assert found.damaged == ()
    assert [batch.committed for batch in found.batches] == [True] * 3
    assert found.newest.ours()[0].offsets.by_topic() == {"t": {0: 4, 1: 3}, "u": {0: 3}}


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_replay_from_version_1_reads_the_same_rows(kept, batch):
    kept.send(message(b"later", "t"), message(b"later", "u"))
    query = kept.query()
    start = kept.offset(batch - 1) if batch else query.initialOffset()
    assert rows(query, start, kept.offset(batch)) == BATCHES[batch]


def test_an_offset_of_version_1_is_returned_unchanged_while_nothing_is_new(kept):
    start = kept.offset(2)
    query = kept.query()
    assert json.dumps(query.latestOffset(start, None)) == json.dumps(start)
    assert json.dumps(query.latestOffset(start, None)) == json.dumps(start)


def test_the_first_new_batch_after_version_1_has_version_2_and_reads_the_new_messages(kept):
    kept.send(message(b"new", "t", 1))
    query, start = kept.query(), kept.offset(2)
    end = json.loads(json.dumps(query.latestOffset(start, None)))
    assert rows(query, start, end) == [("t", 1, 3, "new")]
    assert json.dumps(query.latestOffset(end, None)) == json.dumps(end)
    assert (start["version"], end["version"]) == (1, 2)
    assert end["offsets"] == {"t": {"broker-a": {"0": 4, "1": 4}}, "u": {"broker-a": {"0": 3}}}
    assert end["brokers"]["broker-a"]["store"] == start["store"]
    assert end["topics"] == {name: {"broker-a": known} for name, known in start["topics"].items()}
    with Store.open(kept.path / "store", read_only=True) as store:
        newest = store.read("t", 1, 3)[0]
    assert end["brokers"]["broker-a"]["mark"]["logOffset"] == newest.physical_offset


@pytest.mark.parametrize("kept", ["path"], indirect=True)
def test_a_query_of_version_1_continues_in_spark(spark, kept):
    """The last micro-batch of version 1 is replayed first, as after a crash of the driver."""
    for name in ("2", ".2.crc"):
        (kept.path / "checkpoint/commits" / name).unlink()
    kept.send(message(b"new", "t", 1))
    frame = spark.readStream.format("pyrocket").options(**kept.options)
    frame = frame.schema("topic STRING, queueId INT, queueOffset BIGINT, body STRING").load()
    writer = frame.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(kept.path / "checkpoint"))
    query = writer.start(str(kept.path / "out"))
    query.awaitTermination(120)
    files = [str(file) for file in (kept.path / "out").glob("*.parquet")]
    found = sorted(map(tuple, spark.read.parquet(*files).collect()))
    assert found == sorted([*BATCHES[2], ("t", 1, 3, "new")])
    assert kept.offset(2)["version"] == 1
    assert kept.offset(3)["version"] == 2
