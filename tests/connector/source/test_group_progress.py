"""A consumer group whose offsets follow a stream: `commitToGroup`, called as by Spark's source
runner.
"""

import json
import logging
import os
import pickle
from pathlib import Path

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock, WriteLock
from pyrocket.errors import OptionError, StoreLockedError
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.options.option import BATCH, STREAM
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source import group_follower
from pyspark_pyrocket.source.group_follower import GroupFollower
from pyspark_pyrocket.transport.path import PathSource, forget
from pyspark_pyrocket.transport.targets import target_of
from support.broker import Fault, served
from support.transports import disconnect

SCHEMA = default_columns(kafka=False, headers=False, text=False)
ALL = ReadAllAvailable()


@pytest.fixture
def make(box):
    """Create readers whose group is `billing`."""
    yield lambda **options: DefaultSource(
        {**box.options, "startingOffsets": "earliest", "commitToGroup": "billing", **options}
    ).streamReader(schema=SCHEMA)
    forget(box.path)


@pytest.fixture
def alone(box):
    """Hold the directory as a running broker does."""
    locks = []

    def hold():
        locks.append(FileLock(Layout(box_path(box)).lock))
        assert locks[0].try_lock()

    yield hold
    for lock in locks:
        lock.close()


def box_path(box):
    return Path(box.path)


def through_spark(offset):
    return json.loads(json.dumps(offset))


def ask(reader, start, limit=ALL):
    return through_spark(reader.latestOffset(start, limit))


def committed(box, group="billing"):
    with Store.open(box.path, read_only=True) as store:
        return store.groups.committed(group, box.topic)


def test_the_group_is_moved_when_a_batch_is_committed(box, make):
    box.create(queues=2)
    box.send("a", "b", queue=0)
    reader = make()
    start = through_spark(reader.initialOffset())
    end = ask(reader, start)
    assert committed(box) == {}, "a planned batch is not committed"
    box.send("c", queue=1)
    ask(reader, end)
    assert committed(box) == {0: 2, 1: 0}
    known = json.loads((box_path(box) / "config/subscriptionGroup.json").read_text())
    assert list(known["subscriptionGroupTable"]) == ["billing"]
    offsets = (box_path(box) / "config/consumerOffset.json").read_text()
    assert '"t@billing":{0:2,1:0' in "".join(offsets.split())


def test_the_initial_offset_of_a_new_query_moves_no_group(box, make):
    box.create(queues=1)
    box.send("a", "b")
    reader = make(startingOffsets="latest")
    start = through_spark(reader.initialOffset())
    for _ in range(3):
        assert ask(reader, start) == start
    assert committed(box) == {}


def test_a_group_never_moves_backwards(box, make):
    box.create(queues=1)
    box.send("a", "b", "c", queue=0)
    with box.store() as store:
        store.groups.commit("billing", "t", {0: 3})
    reader = make()
    end = ask(reader, reader.initialOffset(), ReadMaxRows(1))
    ask(make(maxOffsetsPerTrigger="1"), end)
    assert committed(box) == {0: 3}


def test_the_last_batch_before_a_restart_is_committed_by_the_next_run(box, make):
    box.create(queues=1)
    box.send("a", queue=0)
    end = ask(make(), make().initialOffset())
    assert committed(box) == {}
    ask(make(), end)
    assert committed(box) == {0: 1}


def test_nothing_is_written_without_progress(box, make, monkeypatch):
    box.create(queues=1)
    box.send("a", queue=0)
    reader = make()
    end = ask(reader, reader.initialOffset())
    ask(reader, end)
    monkeypatch.setattr(PathSource, "commit", lambda *_: pytest.fail("opened"))
    for _ in range(3):
        ask(reader, end)
    box.other("other").send("elsewhere")
    ask(reader, end)


def test_a_busy_writer_delays_the_commit_and_loses_nothing(box, make, caplog):
    box.create(queues=1)
    box.send("a", queue=0)
    reader = make()
    end = ask(reader, reader.initialOffset())
    layout = Layout(box_path(box))
    turns = WriteLock(layout.mutex, layout.turnstile, os.getpid)
    with turns.hold(1000), caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert ask(reader, end) == end
        assert committed(box) == {}
    turns.close()
    assert len([r for r in caplog.records if "could not be committed" in r.message]) == 1
    reader.follower.clock = lambda: float("inf")
    ask(reader, end)
    assert committed(box) == {0: 1}


def test_small_batches_share_a_commit_and_the_end_of_the_query_commits_the_rest(box, make):
    box.create(queues=1)
    box.send(*"abc", queue=0)
    now = [100.0]
    reader = make(maxOffsetsPerTrigger="1")
    reader.follower.clock = lambda: now[0]
    position = reader.initialOffset()
    for _ in range(3):
        position = ask(reader, position, ReadMaxRows(1))
    assert committed(box) == {0: 1}, "the second commit would be too soon"
    now[0] += group_follower.INTERVAL_SECONDS
    ask(reader, position)
    assert committed(box) == {0: 3}
    box.send("d", queue=0)
    ask(reader, ask(reader, position))
    assert committed(box) == {0: 3}
    reader.stop()
    assert committed(box) == {0: 4}


def test_available_now_waits_for_its_last_commit(box, make, monkeypatch):
    box.create(queues=1)
    box.send("a", queue=0)
    reader = make()
    reader.prepareForTriggerAvailableNow()
    end = ask(reader, reader.initialOffset())
    waits, real = [], PathSource.within

    def noting(self, seconds, *, lock):
        waits.append(lock)
        return real(self, seconds, lock=lock)

    monkeypatch.setattr(PathSource, "within", noting)
    assert ask(reader, end) == end
    assert waits == [group_follower.LAST_LOCK_SECONDS]
    assert committed(box) == {0: 1}


def test_a_store_held_by_another_process_fails_the_start_with_the_reason(box, make, alone):
    box.create(queues=1)
    alone()
    with pytest.raises(StoreLockedError, match=r"commitToGroup.*Java broker") as caught:
        make().initialOffset()
    assert caught.value.code == "STORE_IN_USE"
    assert "remove 'commitToGroup'" in caught.value.remedy
    assert DefaultSource(box.options).streamReader(schema=SCHEMA).initialOffset()


def test_a_broker_that_opens_the_directory_later_does_not_end_the_query(box, make, alone):
    box.create(queues=1)
    box.send("a", queue=0)
    reader = make()
    end = ask(reader, reader.initialOffset())
    alone()
    assert ask(reader, end) == end
    assert committed(box) == {}


def test_a_busy_writer_does_not_fail_the_start(box, make):
    box.create(queues=1)
    layout = Layout(box_path(box))
    turns = WriteLock(layout.mutex, layout.turnstile, os.getpid)
    with turns.hold(1000):
        make().initialOffset()
    turns.close()


def test_a_slow_commit_of_a_broker_fails_neither_the_start_nor_a_commit(box, caplog):
    """The time that a broker takes for a commit is not a wait for a lock."""
    box.create(queues=1).send("a", queue=0)
    slow = [Fault("commit", seconds=0.5), Fault("commit", seconds=0.5)]
    with served(Store.open(box.path), faults=slow) as address:
        asked = {"endpoint": address, "topic": "t", "startingOffsets": "earliest"}
        reader = DefaultSource({**asked, "commitToGroup": "billing"}).streamReader(schema=SCHEMA)
        ask(reader, ask(reader, reader.initialOffset()))
        assert not slow
        assert committed(box) == {0: 1}
        reader.stop()
        disconnect()
    assert "could not be committed" not in caplog.text


def test_a_deleted_queue_or_topic_does_not_prevent_the_commit_of_others(box, make):
    box.create(queues=2)
    box.send("a", queue=0)
    box.send("b", queue=1)
    reader = make()
    end = ask(reader, reader.initialOffset())
    box.grow(queues=1)
    ask(reader, end)
    assert committed(box) == {0: 1}


def test_a_deleted_topic_is_reported_as_missing_and_a_removed_queue_is_not(box, make, caplog):
    box.create(queues=2)
    box.send("a", queue=1)
    reader = make(maxOffsetsPerTrigger="1")
    end = ask(reader, reader.initialOffset())
    asked = ReadOptions.parse(Request({**box.options, "commitToGroup": "other"}, "/"), STREAM)
    del end["offsets"]["t"]["broker-a"]["0"]
    box.grow(queues=1)
    GroupFollower(target_of(asked).open_source, asked).follow(end)
    assert "does not exist" not in caplog.text
    with box.store() as store:
        store.topics.delete("t")
    GroupFollower(target_of(asked).open_source, asked).follow(end)
    assert "no offsets in topic 't', which does not exist" in caplog.text


def test_a_truncated_queue_is_committed_up_to_its_end(box, make):
    box.create(queues=2)
    box.send("a", "b", queue=0)
    box.send("c", queue=1)
    end = ask(make(), make().initialOffset())
    end["offsets"]["t"]["broker-a"]["0"] = 9
    asked = {**box.options, "commitToGroup": "billing"}
    asked = ReadOptions.parse(Request(asked, "/"), STREAM)
    GroupFollower(target_of(asked).open_source, asked).follow(end)
    assert committed(box) == {0: 2, 1: 1}


def test_progress_is_committed_in_all_topics(box, make):
    other = box.other("u").create(queues=1)
    box.create(queues=1)
    other.send("a", "b")
    box.send("c")
    asked = {**box.target, "subscribe": "t,u", "startingOffsets": "earliest"}
    reader = DefaultSource({**asked, "commitToGroup": "billing"}).streamReader(schema=SCHEMA)
    end = ask(reader, reader.initialOffset())
    ask(reader, end)
    assert committed(box) == {0: 1}
    assert committed(other) == {0: 2}


def test_a_read_only_query_writes_nothing_even_when_messages_are_due(box, make, monkeypatch):
    box.create(queues=1)
    monkeypatch.setattr("pyrocket.Store.deliver_due", lambda *_: pytest.fail("delivered"))
    reader = DefaultSource({**box.options, "readOnly": "true"}).streamReader(schema=SCHEMA)
    reader.prepareForTriggerAvailableNow()
    reader.latestOffset(reader.initialOffset(), ALL)


@pytest.mark.parametrize(
    ("query", "writes"),
    [(STREAM, "commitToGroup"), (STREAM, "badRecordsTopic"), (BATCH, "badRecordsTopic")],
)
def test_options_that_write_conflict_with_read_only(box, query, writes):
    decoding = {"valueFormat": "string", "mode": "PERMISSIVE"}
    asked = {**box.options, **decoding, writes: "x", "readOnly": "true"}
    with pytest.raises(OptionError, match=f"{writes}.*readOnly") as caught:
        ReadOptions.parse(Request(asked, "/"), query)
    assert caught.value.code == "OPTION_CONFLICT"


@pytest.mark.parametrize("option", ["group", "commitToGroup"])
@pytest.mark.parametrize("name", ["", "a b", "a@b", "x" * 256])
def test_an_illegal_group_name_is_rejected(box, make, option, name):
    asked = {option: name, "startingOffsets": "committed" if option == "group" else "latest"}
    with pytest.raises(OptionError, match=r"no consumer group|Use 1 to 255"):
        make(**asked)


@pytest.mark.parametrize(
    ("query", "moves", "other"),
    [(BATCH, "BatchCommit", "commitToGroup"), (STREAM, "commitToGroup", "BatchCommit")],
)
def test_an_unused_group_is_rejected_with_the_options_that_move_it(query, moves, other):
    with pytest.raises(OptionError, match="no other option refers to it") as caught:
        ReadOptions.parse(Request({"path": "/s", "topic": "t", "group": "g"}, "/"), query)
    assert caught.value.code == "OPTION_CONFLICT"
    assert all(each in caught.value.remedy for each in ("startingOffsets=committed", moves))
    assert other not in caught.value.remedy


def test_a_batch_cannot_commit_and_the_error_names_batch_commit(box):
    box.create()
    with pytest.raises(OptionError, match=r"BatchCommit") as caught:
        DefaultSource({**box.options, "commitToGroup": "g"}).reader(schema=SCHEMA)
    assert caught.value.code == "OPTION_UNKNOWN"


def test_a_reader_with_a_group_can_be_pickled_for_the_tasks(box, make):
    box.create()
    pickle.loads(pickle.dumps(make()))
