"""Staged rows are invisible; published rows are visible, complete and in order."""

import pyarrow as pa
import pytest
from pyrocket import Published, Store, StoreConfig
from pyrocket.errors import (
    MessageError,
    SchemaError,
    SinkError,
    StoreReadOnlyError,
    TopicNotFoundError,
)
from pyrocket.services.sink.batch import query_key
from pyrocket.tools.verify.verify import verify
from support.sinks import QUERY, numbered, publish, stage, stage_tasks, staged_files
from support.stores import batch, bodies, snapshot

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ROWS = [b"%03d" % number for number in range(40)]


def all_bodies(store, topic="t"):
    return sorted(body for rows in bodies(store, topic).values() for body in rows)


def test_staged_rows_are_invisible(store, reader):
    before = reader.position()
    stage_tasks(reader, numbered(0), ROWS)
    assert reader.position() == before
    assert all_bodies(reader) == all_bodies(store) == []


def test_published_rows_are_complete_and_durable(store, reader):
    one = numbered(0)
    result = store.sink.publish(one, stage_tasks(reader, one, ROWS))
    assert result == Published(40, result.bytes, False, store.position().published)
    assert all_bodies(reader) == ROWS
    assert result.bytes >= sum(map(len, ROWS))


def test_a_query_leaves_no_folder_after_a_published_batch(store):
    """A query may be deleted at any time, and its folder would stay."""
    for number in range(2):
        publish(store, number, ROWS)
        assert not (store.path / "pyrocket" / "staging" / numbered(number).key).exists()


def test_rows_of_a_queue_keep_the_order_of_tasks_and_batches(store):
    for number in range(3):
        publish(store, number, [b"%d:%02d" % (number, row) for row in range(30)], queue_id=1)
    expected = [b"%d:%02d" % (number, row) for number in range(3) for row in range(30)]
    assert bodies(store) == {0: [], 1: expected}


def test_a_task_fails_if_its_topic_is_missing_and_may_not_be_created(path):
    with (
        Store.open(path, read_only=True, config=StoreConfig(auto_create_topics=False)) as reader,
        pytest.raises(TopicNotFoundError),
    ):
        stage(reader, numbered(0), ROWS, topic="new")
    assert staged_files(path) == []


def test_the_error_for_an_invalid_row_has_its_number_and_no_file_is_left(path, reader):
    with pytest.raises(MessageError, match="row 1 names queue 7"):
        stage(reader, numbered(0), ROWS[:2], queue_id=[0, 7])
    with reader.sink.stage(numbered(0), partition=0, attempt=0) as stager:
        stager.append(batch(ROWS, 0), topic="t")
        with pytest.raises(SchemaError):
            stager.append(pa.record_batch({"boby": pa.array(ROWS)}), topic="t")
    assert staged_files(path) == []


def test_a_task_without_rows_leaves_no_file(path, reader, store):
    one = numbered(0)
    empty = stage(reader, one, [])
    assert (empty.rows, empty.name) == (0, "")
    assert staged_files(path) == []
    store.sink.publish(one, [empty, stage(reader, one, ROWS, 1)])
    assert all_bodies(store) == ROWS


def test_an_empty_batch_writes_one_small_file_and_needs_no_writer(path, reader):
    reader.sink.publish(numbered(0), [])
    before = snapshot(path)
    assert reader.sink.publish(numbered(1), [stage(reader, numbered(1), [])]).rows == 0
    assert reader.sink.publish_anonymous([]).rows == 0
    changed = {name for name, now in snapshot(path).items() if now != before.get(name)}
    assert changed == {f"pyrocket/sink/{query_key(QUERY)}"}


def test_a_read_only_store_cannot_publish(reader):
    one = numbered(0)
    with pytest.raises(StoreReadOnlyError):
        reader.sink.publish(one, [stage(reader, one, ROWS)])


def test_anonymous_batch_is_published_completely_and_not_recorded(store, reader):
    one = numbered(0)
    for _ in range(2):
        result = store.sink.publish_anonymous(stage_tasks(reader, one, ROWS))
        assert (result.rows, result.dropped) == (40, False)
    assert all_bodies(store) == sorted(ROWS * 2)
    assert store.sink.last(one.identity, one.target) is None
    assert not (store.path / "pyrocket" / "staging" / one.key).exists()


def test_staged_files_of_published_and_earlier_batches_are_deleted(path, store, reader):
    stage(reader, numbered(0), ROWS)
    stage(reader, numbered(1), ROWS, attempt=1)
    later = stage(reader, numbered(2), ROWS)
    publish(store, 1, ROWS)
    assert staged_files(path) == [later.name]


@pytest.mark.parametrize("run", ["run-1", "run-2"])
def test_a_task_finishes_after_its_batch_was_published(store, reader, run):
    """Another attempt or run has published the batch, so this task's rows are not needed."""
    one = numbered(0, run)
    with reader.sink.stage(one, partition=0, attempt=1) as stager:
        stager.append(batch(ROWS[:20], 0), topic="t")
        publish(store, 0, ROWS, "run-1", queue_id=0)
        stager.append(batch(ROWS[20:], 0), topic="t")
        staged = stager.finish()
    if run == "run-1":
        assert store.sink.publish(one, [staged]).dropped
    else:
        with pytest.raises(SinkError, match="SINK_FENCED"):
            store.sink.publish(one, [staged])
    assert all_bodies(store) == ROWS


def test_discarded_files_are_deleted(path, reader):
    staged = stage_tasks(reader, numbered(0), ROWS)
    reader.sink.discard(staged)
    reader.sink.discard(staged)
    assert staged_files(path) == []


def test_leftovers_are_deleted_after_a_week(path, store, reader, clock):
    left = stage(reader, numbered(7, identity="gone"), ROWS)
    clock.now += 7 * DAY_MS
    publish(store, 0, ROWS)
    assert left.name in staged_files(path)
    clock.now += HOUR_MS
    publish(store, 1, ROWS)
    assert staged_files(path) == []
    assert not (path / "pyrocket" / "staging" / left.name).parent.exists()


def test_leftovers_are_deleted_at_most_once_an_hour(path, store, reader, clock):
    left = stage(reader, numbered(7, identity="gone"), ROWS)
    clock.now += 7 * DAY_MS - 1
    publish(store, 0, ROWS)
    clock.now += HOUR_MS - 1
    publish(store, 1, ROWS)
    assert left.name in staged_files(path)
    clock.now += 1
    publish(store, 2, ROWS)
    assert staged_files(path) == []


def test_verify_accepts_a_store_with_batches_and_staged_rows(path, store, reader):
    publish(store, 0, ROWS)
    publish(store, 0, ROWS, "run-2")
    stage(reader, numbered(1), ROWS)
    assert [found.code for found in verify(path).findings] == ["NOT_CLOSED"]
    store.close()
    assert not verify(path).findings


def test_staged_files_are_recycled(path, store, reader):
    publish(store, 0, ROWS)
    free = set((path / "pyrocket" / "staging" / "free").iterdir())
    assert len(free) == 2
    inodes = {file.stat().st_ino for file in free}
    one = numbered(1)
    staged = stage_tasks(reader, one, ROWS[:2])
    again = {(path / "pyrocket" / "staging" / one.name).stat().st_ino for one in staged}
    assert again == inodes
    store.sink.publish(one, staged)
    assert all_bodies(store) == sorted(ROWS + ROWS[:2])
