"""Batches that cannot be published as staged are rejected before any write."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyrocket import Retention, Store
from pyrocket.errors import (
    MessageError,
    SinkError,
    StoreNotSharedError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from pyrocket.services.sink.staged_file import StagedReader
from support.sinks import numbered, stage, stage_tasks
from support.stores import SMALL, bodies

ROWS = [b"%03d" % number for number in range(40)]


def all_bodies(store, topic="t"):
    return sorted(body for rows in bodies(store, topic).values() for body in rows)


def test_rows_staged_for_another_store_are_rejected(tmp_path, store):
    one = numbered(0)
    with Store.open(tmp_path / "other", create=True, config=SMALL) as other:
        staged = stage(other, one, ROWS)
    with pytest.raises(StoreNotSharedError, match="not for this one"):
        store.sink.publish(one, [staged])
    assert all_bodies(store) == []


def test_missing_staged_file_is_rejected(path, store, reader):
    one = numbered(0)
    staged = stage_tasks(reader, one, ROWS)
    (path / "pyrocket" / "staging" / staged[1].name).unlink()
    with pytest.raises(StoreNotSharedError):
        store.sink.publish(one, staged)
    assert all_bodies(store) == []


@pytest.mark.parametrize("change", ["more", "fewer", "read only"])
def test_a_topic_changed_since_staging_is_rejected(store, reader, change):
    one = numbered(0)
    staged = [stage(reader, one, ROWS)]
    changes = {"more": {"write_queues": 3}, "fewer": {"write_queues": 1}, "read only": {"perm": 4}}
    store.topics.update("t", **changes[change])
    before = store.position()
    with pytest.raises(SinkError) as caught:
        store.sink.publish(one, staged)
    assert caught.value.code == "TOPIC_CHANGED"
    assert store.position() == before


def test_deleted_topic_is_created_again_or_rejected(path, clock, reader):
    one, two = numbered(0), numbered(1)
    staged = [stage(reader, each, ROWS) for each in (one, two)]
    with Store.open(path, config=replace(SMALL, auto_create_topics=False), clock=clock) as store:
        store.topics.delete("t")
        with pytest.raises(TopicNotFoundError):
            store.sink.publish(one, staged[:1])
    with Store.open(path, config=SMALL, clock=clock) as store:
        store.sink.publish(one, [])
        store.sink.publish(two, staged[1:])
        assert all_bodies(store) == ROWS


def test_full_disk_rejects_batch(path, clock, reader):
    one = numbered(0)
    staged = stage(reader, one, ROWS)
    full = Retention(clean_ratio=0, force_ratio=0, full_ratio=0)
    with Store.open(path, config=replace(SMALL, retention=full), clock=clock) as store:
        with pytest.raises(StoreUnavailableError) as caught:
            store.sink.publish(one, [staged])
        assert caught.value.code == "DISK_FULL"
        assert all_bodies(store) == []
    with Store.open(path, config=SMALL, clock=clock) as store:
        store.sink.publish(one, [staged])
        assert all_bodies(store) == ROWS


def test_tasks_with_different_queue_counts_of_a_topic_are_rejected(store, reader):
    one = numbered(0)
    staged = [stage(reader, one, ROWS)]
    store.topics.update("t", write_queues=3)
    staged.append(stage(store, one, ROWS, 1))
    with pytest.raises(SinkError, match="was changed"):
        store.sink.publish(one, staged)


def test_a_change_of_any_byte_of_a_staged_file_is_detected(path, store, reader):
    """The padding between the parts of the file, less than eight bytes each, is not checked."""
    staged = stage(reader, numbered(0), [b"body"], keys=pa.array(["k"]))
    file = path / "pyrocket" / "staging" / staged.name
    good = file.read_bytes()
    assert len(good) == staged.file_bytes
    for at in range(len(good)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        assert is_broken(file, staged) or good[at] == 0, f"byte {at} is not padding"


def is_broken(file, staged):
    try:
        with StagedReader(file, staged.file_bytes, staged.checksum) as opened:
            opened.check()
            for chunk in opened.chunks():
                chunk.load()
    except SinkError as error:
        return error.code == "STAGED_BROKEN"
    return False


def test_a_record_too_long_for_a_log_file_is_rejected_before_anything_is_written(store, reader):
    one = numbered(0)
    staged = stage(reader, one, [b"x", b"y" * 4090])
    before = store.position()
    with pytest.raises(MessageError) as caught:
        store.sink.publish(one, [staged])
    assert caught.value.code == "RECORD_TOO_LARGE"
    assert store.position() == before
