"""Every kind of loss, in every kind of query, with every policy: the query ends or goes on.

The other tests of losses check what is read; these check that Spark reports it and never hangs.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyrocket import Store
from pyspark.errors import StreamingQueryException
from pyspark_pyrocket import foreach_batch
from pyspark_pyrocket.transport.path import forget
from support.stores import SMALL, batch, log_files, message, overwrite, reboot, set_disk_usage
from support.transports import options_of

FIRST = [f"{number:06}".ljust(200, ".").encode() for number in range(30)]
CODES = {
    "deleted": "TOPIC_DELETED",
    "recreated": "TOPIC_RECREATED",
    "expired": "OFFSET_OUT_OF_RANGE",
    "truncated": "LOG_TRUNCATED",
    "restored": "LOG_TRUNCATED",
}
QUICK = ("deleted", "for_each", "fail", "path")
ENDS_S = 120


def cases():
    for loss in CODES:
        for sink in ("plain", "for_each", "joined"):
            for policy in ("fail", "skip", "earliest", "latest"):
                for target in ("path", "endpoint"):
                    case = (loss, sink, policy, target)
                    yield pytest.param(*case, marks=() if case == QUICK else pytest.mark.heavy)


@dataclass
class Query:
    """A query from topic `t` to Parquet."""

    spark: object
    folder: Path
    sink: str

    def run(self, options, **more):
        """Run until all messages are read; return whether it has ended by itself."""
        asked = {**options, "topic": "t", "startingOffsets": "earliest", **more}
        frame = self.spark.readStream.format("pyrocket").options(**asked)
        frame = frame.schema("queueId INT, body STRING").load()
        if self.sink == "joined":
            frame = frame.join(self.spark.createDataFrame([(0,)], "queueId INT"), "queueId")
        writer = frame.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        if self.sink == "for_each":
            writer = writer.foreachBatch(foreach_batch(self.save))
        else:
            writer = writer.format("parquet").option("path", self.out)
        query = writer.trigger(availableNow=True).start()
        try:
            return query.awaitTermination(ENDS_S)
        finally:
            query.stop()

    def save(self, rows, batch_id):
        rows.write.mode("append").parquet(self.out)

    @property
    def out(self):
        return str(self.folder / "out")

    def bodies(self):
        return [row.body for row in self.spark.read.parquet(self.out).select("body").collect()]


@dataclass
class Damaged:
    """A store, and the ways in which it loses messages."""

    path: Path

    def send(self, *bodies, flushed=True):
        with Store.open(self.path) as store:
            store.append_batch(batch(bodies, 0), topic="t")
            store.close(clean=flushed)

    def create(self):
        with Store.open(self.path, create=True, config=SMALL) as store:
            store.topics.create("t", read_queues=1, write_queues=1)

    def deleted(self):
        with Store.open(self.path) as store:
            store.topics.delete("t")

    def recreated(self):
        self.deleted()
        self.create()
        self.send(b"new")

    def expired(self):
        self.send(*FIRST)
        with Store.open(self.path) as store:
            store.append(message(b"new"))
            assert store.clean(hours=0).removals

    def truncated(self):
        with Store.open(self.path, read_only=True) as store:
            lost = store.read("t", 0, 25)[0].physical_offset
        reboot(self.path)
        file = next(one for one in log_files(self.path) if 0 <= lost - int(one.name) < 4096)
        overwrite(file, b"\1" * 200, lost - int(file.name))
        self.send(b"new")

    def restored(self):
        shutil.rmtree(self.path)
        shutil.copytree(self.path.with_name("copy"), self.path)
        self.send(b"new")


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    """A store with a backup of its first 20 messages; a crash may lose the others."""
    set_disk_usage(monkeypatch, 100)
    made = Damaged(tmp_path / "store")
    made.create()
    made.send(*FIRST[:20])
    shutil.copytree(made.path, tmp_path / "copy")
    made.send(*FIRST[20:], flushed=False)
    yield made
    forget(str(made.path))


@pytest.mark.parametrize(("loss", "sink", "policy", "target"), [*cases()])
def test_a_query_ends_or_goes_on_after_a_loss(spark, tmp_path, damaged, loss, sink, policy, target):
    query = Query(spark, tmp_path / "query", sink)
    # A broker flushes the log when it is stopped: then a crash loses nothing.
    with options_of("path" if loss == "truncated" else target, damaged.path) as options:
        assert query.run(options)
    forget(str(damaged.path))
    getattr(damaged, loss)()
    with options_of(target, damaged.path) as options:
        if policy == "fail":
            with pytest.raises(StreamingQueryException, match=CODES[loss]):
                query.run(options)
            return
        assert query.run(options, onDataLoss=policy)
    if loss == "deleted":
        damaged.create()
    damaged.send(b"later")
    with options_of(target, damaged.path) as options:
        assert query.run(options, onDataLoss=policy)
    found = query.bodies()
    assert set(found) >= {body.decode() for body in FIRST}
    assert ("new" in found) == (loss != "deleted" and policy != "latest")
    assert ("later" in found) == (loss != "deleted" or policy != "latest")


@pytest.mark.parametrize("policy", ["fail", pytest.param("skip", marks=pytest.mark.heavy)])
def test_a_loss_during_a_micro_batch_ends_its_query_or_is_skipped(spark, tmp_path, damaged, policy):
    """The tasks that Spark runs for the function of foreachBatch find fewer messages than planned.

    Spark cannot match the text of such an error, which contains traces of Java.
    """
    query = Query(spark, tmp_path / "query", "for_each")
    save = query.save

    def lose_first(rows, batch_id):
        if batch_id == 0:
            damaged.send(*FIRST)
            with Store.open(damaged.path) as store:
                store.clean(hours=0)
        save(rows, batch_id)

    query.save = lose_first
    options = {"path": str(damaged.path), "onDataLoss": policy}
    if policy == "fail":
        with pytest.raises(StreamingQueryException, match="OFFSET_OUT_OF_RANGE"):
            query.run(options)
        return
    assert query.run(options)
