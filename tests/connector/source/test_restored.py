"""A store is restored from an older copy while a query has read later messages of the original."""

import json
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyrocket import Store
from pyrocket.errors import LogTruncatedError
from pyrocket.testing import FileClock
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from support.shares import share
from support.spark_checkpoints import Files, run_json
from support.stores import SMALL, batch, next_boot, reboot
from support.transports import options_of

SCHEMA = default_columns(kafka=False, headers=False, text=False)
NOW = 1_700_000_000_000


def through_spark(offset):
    return json.loads(json.dumps(offset))


@dataclass
class Restored:
    """A store, its backup, and a query on it. Bodies are numbers of equal length.

    kind: What the query reads: the directory (`path`), or its broker (`endpoint`), which is started
        for a query, and stops before the directory is replaced.
    """

    path: Path
    kind: str
    options: dict
    sent: dict = field(default_factory=dict)
    port: int = 0
    target: dict | None = None
    opened: ExitStack = field(default_factory=ExitStack)

    @property
    def copy(self):
        return self.path.with_name("copy")

    def create(self, topic="t", queues=2):
        with Store.open(self.path, create=True, config=SMALL) as store:
            store.topics.create(topic, read_queues=queues, write_queues=queues)
        if not self.sent:
            FileClock(self.path).set(NOW)

    def send(self, count, queue=0, topic="t", path=None):
        """Send messages with unique numbers, a second later."""
        path = path or self.path
        FileClock(path).advance(1_000)
        first = len(self.sent)
        bodies = [b"%09d" % (first + n) for n in range(count)]
        self.sent.update(dict.fromkeys(bodies, (topic, queue)))
        with Store.open(path) as store:
            store.append_batch(batch(bodies, queue), topic=topic)
        return bodies

    def back_up(self):
        """Copy the store after a clean shutdown."""
        self.close()
        shutil.copytree(self.path, self.copy)

    def restore(self):
        """Replace the store by the copy; its clock continues from the current time."""
        is_open = self.target is not None
        self.close()
        now = FileClock(self.path)()
        self.path.rename(self.path.with_name("lost"))
        self.copy.rename(self.path)
        FileClock(self.path).set(now + 60_000)
        if is_open:
            self.open()

    def open(self):
        """Start the broker; its port stays the same."""
        self.target = self.opened.enter_context(options_of(self.kind, self.path, self.port))
        self.port = int(self.target.get("endpoint", ":0").rpartition(":")[2])

    def query(self, **options):
        if self.target is None:
            self.open()
        return DefaultSource({**self.target, **self.options, **options}).streamReader(schema=SCHEMA)

    def close(self):
        """Close the store, or stop its broker."""
        self.target = None
        self.opened.close()

    def read_all(self, start=None, **options):
        """Run a query until nothing is left; return the bodies that it reads, and its last
        offset."""
        query, found = self.query(**options), []
        start = start or through_spark(query.initialOffset())
        while True:
            end = through_spark(query.latestOffset(start, ReadAllAvailable()))
            if end == start:
                return found, start
            found += bodies(query, start, end)
            start = end


def bodies(query, start, end):
    tasks = query.partitions(start, end)
    return [
        body
        for task in tasks
        for part in query.read(task)
        for body in part.column("body").to_pylist()
    ]


@pytest.fixture(params=share(["path", "endpoint"], 1))
def restored(tmp_path, request):
    options = {"topic": "t", "startingOffsets": "earliest"}
    made = Restored(tmp_path / "store", request.param, options)
    made.create()
    yield made
    made.close()


@pytest.fixture
def ahead(restored):
    """A query that has read 50 messages of each queue; the restored store has only 30."""
    restored.send(30)
    restored.send(30, queue=1)
    restored.back_up()
    restored.send(20)
    restored.send(20, queue=1)
    read, offset = restored.read_all()
    assert len(read) == 100
    restored.restore()
    return restored, offset


def test_a_query_on_a_restored_store_fails_with_an_error_that_names_it(ahead):
    restored, offset = ahead
    for count in (0, 40):  # The query fails before a new message arrives, too.
        restored.send(count)
        with pytest.raises(LogTruncatedError, match="older copy of the store that the checkpoint"):
            restored.query().latestOffset(offset, ReadAllAvailable())


@pytest.mark.parametrize("count", [0, 1, 20, 21, 200])
def test_skip_continues_with_exactly_the_messages_stored_after_the_restore(ahead, count, caplog):
    """New messages have offsets that were read before, whatever the length of the queues."""
    restored, offset = ahead
    new = restored.send(count) + restored.send(count + 3, queue=1)
    read, offset = restored.read_all(offset, onDataLoss="skip")
    assert sorted(read) == sorted(new)
    assert "is an older copy of the store" in caplog.text
    later = restored.send(2)
    assert restored.read_all(offset)[0] == later, "and `fail` raises no error any more"


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 70 + 35), ("latest", 0)])
def test_earliest_and_latest_treat_a_restore_like_other_losses(ahead, policy, expected):
    restored, offset = ahead
    restored.send(40)
    restored.send(5, queue=1)
    read, offset = restored.read_all(offset, onDataLoss=policy)
    assert len(read) == expected
    lost = {"0": 0, "1": 0} if policy == "earliest" else {"0": 40, "1": 5}
    assert offset["lost"] == {"t": {"broker-a": lost}}
    new = restored.send(3, queue=1)
    assert restored.read_all(offset)[0] == new


def test_a_queue_that_lagged_loses_nothing_and_repeats_nothing(restored):
    """The query had only read messages of this queue that the copy has as well."""
    restored.send(30)
    unread = restored.send(30, queue=1)
    restored.back_up()
    restored.send(20)
    restored.send(20, queue=1)
    assigned = {"topic": "", "assign": '{"t": [0]}', "startingOffsets": "earliest"}
    restored.options = {k: v for k, v in assigned.items() if v}
    read, offset = restored.read_all()
    assert len(read) == 50
    offset["offsets"]["t"]["broker-a"]["1"] = 4
    restored.restore()
    new = restored.send(25) + restored.send(35, queue=1)
    restored.options = {"topic": "t"}
    read, _ = restored.read_all(offset, onDataLoss="skip")
    assert sorted(read) == sorted([*unread[4:], *new])


def test_a_replay_over_a_restored_store_reads_the_planned_messages_that_the_copy_has(restored):
    """The copy has only some of the messages of the planned micro-batch."""
    restored.send(10)
    _, start = restored.read_all()
    shared = restored.send(20)
    restored.back_up()
    restored.send(20)
    end = through_spark(restored.query().latestOffset(start, ReadAllAvailable()))
    restored.restore()
    new = restored.send(40)
    with pytest.raises(LogTruncatedError, match="older copy"):
        restored.query().partitions(start, end)
    assert bodies(restored.query(onDataLoss="skip"), start, end) == shared
    assert restored.read_all(end, onDataLoss="skip")[0] == new


def test_a_replay_reads_nothing_of_a_topic_that_was_deleted_after_the_restore(restored):
    restored.options |= {"missingTopic": "wait"}
    restored.send(30)
    restored.back_up()
    restored.send(20)
    start = through_spark(restored.query().initialOffset())
    end = through_spark(restored.query().latestOffset(start, ReadAllAvailable()))
    restored.restore()
    with Store.open(restored.path) as store:
        store.topics.delete("t")
    assert restored.query(onDataLoss="skip").partitions(start, end) == []


def test_a_running_query_detects_that_its_store_was_replaced(restored):
    restored.send(30)
    restored.back_up()
    restored.send(20)
    query = restored.query()
    start = through_spark(query.latestOffset(query.initialOffset(), ReadAllAvailable()))
    assert query.latestOffset(start, ReadAllAvailable()) == start
    restored.restore()
    restored.send(40)
    with pytest.raises(LogTruncatedError, match="older copy"):
        query.latestOffset(start, ReadAllAvailable())


def test_a_crash_after_the_restore_does_not_change_the_outcome(ahead):
    """The epoch that starts with the recovery has queue ends that the query never reached."""
    restored, offset = ahead
    restored.close()
    new = restored.send(40)
    with Store.open(restored.path) as store:
        new += restored.send(2)
        store.close(clean=False)
    reboot(restored.path)
    new += restored.send(2) + restored.send(3, queue=1)
    with Store.open(restored.path, read_only=True) as store:
        assert store.history.epoch == 1
    with pytest.raises(LogTruncatedError):
        restored.query().latestOffset(offset, ReadAllAvailable())
    assert sorted(restored.read_all(offset, onDataLoss="skip")[0]) == sorted(new)


def test_a_restored_snapshot_is_reported_and_skip_continues_after_it(restored):
    """The snapshot starts a new epoch, so its queue ends are known."""
    restored.send(30)
    restored.send(30, queue=1)
    with Store.open(restored.path, read_only=True) as store:
        store.snapshot(restored.copy)
    FileClock(restored.copy).set(NOW)
    restored.send(20)
    _, offset = restored.read_all()
    restored.restore()
    new = restored.send(40) + restored.send(2, queue=1)
    with pytest.raises(LogTruncatedError, match=r"queue 0 at offset 30.* older copy"):
        restored.query().latestOffset(offset, ReadAllAvailable())
    assert sorted(restored.read_all(offset, onDataLoss="skip")[0]) == sorted(new)


def test_a_topic_that_the_copy_does_not_have_yet_is_read_from_its_first_message(restored):
    restored.options |= {"topic": None, "subscribe": "t,u", "missingTopic": "wait"}
    restored.options = {key: value for key, value in restored.options.items() if value}
    restored.send(3)
    restored.back_up()
    restored.create("u", queues=1)
    restored.send(20, topic="u")
    _, offset = restored.read_all()
    restored.restore()
    read, offset = restored.read_all(offset, onDataLoss="skip")
    assert read == []
    with Store.open(restored.path) as store:
        store.topics.create("u", read_queues=1, write_queues=1)
    new = restored.send(25, topic="u")
    assert restored.read_all(offset)[0] == new


def test_offsets_of_topics_no_longer_read_are_limited_to_the_copy(restored):
    restored.create("u", queues=1)
    restored.options = {"startingOffsets": "earliest"}
    restored.send(10)
    restored.send(10, topic="u")
    restored.back_up()
    restored.send(10, topic="u")
    restored.send(1)
    _, offset = restored.read_all(subscribe="t,u")
    restored.restore()
    new = restored.send(15, topic="u")
    read, offset = restored.read_all(offset, subscribe="t", onDataLoss="skip")
    assert read == []
    assert restored.read_all(offset, subscribe="t,u")[0] == new


def test_moving_a_store_changes_nothing_for_its_queries(restored):
    restored.send(30)
    restored.send(10, queue=1)
    _, offset = restored.read_all()
    for number in range(3):
        restored.back_up()
        restored.path.rename(restored.path.with_name(f"before-{number}"))
        restored.copy.rename(restored.path)
        next_boot(restored.path)
        query = restored.query()
        assert query.latestOffset(offset, ReadAllAvailable()) is offset
        new = restored.send(3, queue=1)
        read, offset = restored.read_all(offset)
        assert read == new


def test_the_mark_is_of_the_newest_message_before_the_offsets(restored):
    """Not of the newest message in the queue that was read last."""
    restored.send(3, queue=1)
    restored.send(3)
    _, offset = restored.read_all()
    with Store.open(restored.path, read_only=True) as store:
        newest = store.read("t", 0, 2)[0]
    mark = offset["brokers"]["broker-a"]["mark"]
    assert (mark["logOffset"], mark["storeTimestamp"]) == (
        newest.physical_offset,
        newest.store_timestamp,
    )
    offset["offsets"]["t"]["broker-a"]["1"] = 1
    _, later = restored.read_all(offset)
    assert later["brokers"]["broker-a"]["mark"] == mark


def test_a_query_that_started_at_the_end_also_has_a_mark(restored):
    restored.send(30)
    restored.back_up()
    restored.send(20)
    offset = through_spark(restored.query(startingOffsets="latest").initialOffset())
    restored.restore()
    restored.send(40)
    with pytest.raises(LogTruncatedError, match="older copy"):
        restored.query().latestOffset(offset, ReadAllAvailable())


def test_a_mark_whose_message_was_deleted_is_ignored(restored):
    restored.send(20)
    _, offset = restored.read_all()
    restored.send(200, queue=1)
    with Store.open(restored.path) as store:
        store.clean(total_bytes=4096)
        assert store.min_offset("t", 0) == 20
    read, _ = restored.read_all(offset, onDataLoss="skip")
    assert 0 < len(read) < 200


@pytest.mark.parametrize("restored", ["path"], indirect=True)
def test_a_checkpoint_can_be_reset_to_a_restored_store(restored, tmp_path):
    """A query that fails after a restore does not need a new checkpoint."""
    restored.create("u", queues=1)
    restored.send(10)
    restored.back_up()
    restored.send(10)
    restored.send(1, topic="u")
    box = type("Box", (), {"path": str(restored.path)})
    files = Files(tmp_path / "checkpoint", box, subscribe="t,u")
    files.plan()
    files.commit()
    restored.restore()
    new = restored.send(15)
    arguments = ("reset", files.path, "--path", restored.path, "--to", "-1h", "--yes")
    kept = run_json(*arguments, "--topic", "u", status=2)["error"]
    assert kept["code"] == "CHECKPOINT_TOPIC"
    run_json("reset", files.path, "--path", restored.path, "--to", "latest", "--yes")
    later = restored.send(4)
    restored.options |= {"topic": "t,u"}
    moved = files.offset(1)
    query = DefaultSource({"path": str(restored.path), "subscribe": "t,u"})
    end = query.streamReader(schema=SCHEMA).latestOffset(moved, ReadAllAvailable())
    assert bodies(query.streamReader(schema=SCHEMA), moved, end) == later
    assert new
