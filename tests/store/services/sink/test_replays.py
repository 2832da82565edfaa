"""Replays with other rows, missing batches, and stores to which the query did not write."""

import json
import logging
import os
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import SinkBatch, Store
from pyrocket.disk import io
from pyrocket.disk.file_queue import file_name
from pyrocket.errors import SinkError, StoreUnavailableError
from pyrocket.formats import publish_record
from pyrocket.formats.checked_json import decode_own
from pyrocket.formats.system_topics import SINK_TOPIC
from pyrocket.services.sink.batch import query_key
from pyrocket.services.sink.ledger import FORGET_AFTER_MS
from pyrocket.tools.repair.run import repair
from support.inner import inner
from support.sinks import QUERY, numbered, publish, stage, stage_tasks
from support.stores import SMALL, FakeClock, bodies, overwrite, reboot

ROWS = [b"%03d" % number for number in range(40)]


def strictly(store, number, rows, run="run-1", **policy):
    return publish(store, number, rows, run, **{"on_gap": "fail", **policy})


def refused(store, number, rows=ROWS, run="run-1", **policy):
    with pytest.raises(SinkError) as caught:
        strictly(store, number, rows, run, **policy)
    return caught.value


def all_bodies(store):
    return sorted(body for rows in bodies(store).values() for body in rows)


def errors(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@contextmanager
def an_earlier_release(monkeypatch):
    """Publish records are written as in version 1, which had neither of the fields `NEW`."""

    def dumps(content):
        return json.dumps({k: v for k, v in content.items() if k not in NEW})

    with monkeypatch.context() as patch:
        patch.setattr(publish_record, "json", SimpleNamespace(dumps=dumps, loads=json.loads))
        yield


NEW = ("version", "content_bytes")


# A replay that differs


OTHERS = {
    "more rows": [*ROWS, b"more"],
    "fewer rows": ROWS[1:],
    "other rows": [b"other", *ROWS[1:]],
    "no rows": [],
}


@pytest.mark.parametrize("rows", OTHERS.values(), ids=OTHERS)
def test_the_error_for_a_replay_with_other_rows_has_the_rows_and_bytes_of_both(store, rows):
    strictly(store, 0, ROWS)
    error = refused(store, 0, rows, "run-2")
    assert error.code == "SINK_BATCH_DIFFERS"
    assert "with 40 rows of 120 bytes" in error.message
    assert f"repeats it with {len(rows)} rows of {sum(map(len, rows))} bytes" in error.message
    assert "onReplayDifference" in error.remedy
    assert all_bodies(store) == ROWS


@pytest.mark.parametrize("rows", OTHERS.values(), ids=OTHERS)
def test_replay_with_other_rows_can_be_dropped_and_is_logged(store, caplog, rows):
    strictly(store, 0, ROWS)
    assert strictly(store, 0, rows, "run-2", on_difference="drop").dropped
    (logged,) = errors(caplog)
    assert "40 rows" in logged
    assert f"{len(rows)} rows" in logged
    assert all_bodies(store) == ROWS
    assert strictly(store, 1, [b"next"], "run-2").rows == 1


def test_replay_with_other_rows_can_be_published_as_well(store, caplog):
    strictly(store, 0, ROWS)
    more = [*ROWS, b"more"]
    assert strictly(store, 0, more, "run-2", on_difference="publish").rows == 41
    assert len(errors(caplog)) == 1
    assert all_bodies(store) == sorted(ROWS + more)
    assert strictly(store, 0, more, "run-3").dropped, "it is now the published batch"


@pytest.mark.parametrize("tasks", [1, 3])
def test_exact_replay_is_dropped_silently_however_rows_are_split(store, caplog, tasks):
    caplog.set_level(logging.INFO, "pyrocket")
    strictly(store, 0, ROWS)
    assert strictly(store, 0, ROWS[::-1], "run-2", tasks=tasks).dropped
    assert not caplog.records


def test_a_replay_without_a_run_and_with_other_rows_is_rejected(store):
    strictly(store, 3, ROWS, run="")
    assert refused(store, 3, ROWS[1:], run="").code == "SINK_BATCH_DIFFERS"
    assert strictly(store, 3, ROWS, run="").dropped


@pytest.mark.parametrize(
    "saved", [False, True], ids=["ledger from the log", "ledger from the file"]
)
def test_batches_of_an_earlier_release_are_compared_by_row_count(
    path, store, clock, monkeypatch, saved
):
    with an_earlier_release(monkeypatch):
        strictly(store, 0, ROWS)
        store.close()
    ledger = path / "pyrocket" / "sink.json"
    content = decode_own(ledger, ledger.read_bytes())
    for entry in content["queries"].values():
        assert (entry.pop("version"), entry.pop("content_bytes")) == (1, 0)
        del entry["bytes"]
    ledger.write_bytes(json.dumps(content).encode())
    if not saved:
        ledger.unlink()
    with Store.open(path, config=SMALL, clock=clock) as store:
        assert refused(store, 0, ROWS[1:], "run-2").code == "SINK_BATCH_DIFFERS"
        assert strictly(store, 0, ROWS, "run-2").dropped
        assert strictly(store, 1, ROWS, "run-2").rows == 40


# Batches that are missing


def test_batches_without_rows_are_not_a_gap_and_nothing_is_logged(store, reader, caplog):
    caplog.set_level(logging.INFO, "pyrocket")
    for number in range(12):
        rows, run = ROWS if number % 4 == 3 else [], f"run-{number // 3}"
        for _ in range(2):
            strictly(store if rows else reader, number, rows, run)
    assert not caplog.records
    assert store.sink.last(QUERY, "t") == 11


@pytest.mark.parametrize("rows", [ROWS, []], ids=["rows", "no rows"])
def test_the_error_for_a_gap_names_the_missing_batches(store, rows):
    strictly(store, 0, ROWS)
    strictly(store, 1, [])
    error = refused(store, 4, rows)
    assert error.code == "SINK_BATCH_GAP"
    assert "batches 2 to 3 are missing here" in error.message
    assert "batch 2 is missing here" in refused(store, 3, rows).message
    assert "onBatchGap" in error.remedy
    assert all_bodies(store) == ROWS


@pytest.mark.parametrize("rows", [ROWS, []], ids=["rows", "no rows"])
def test_gap_can_be_accepted_once(store, caplog, rows):
    strictly(store, 0, [b"first"])
    strictly(store, 4, rows, on_gap="accept")
    assert len(errors(caplog)) == 1
    strictly(store, 5, [b"next"])
    assert len(errors(caplog)) == 1
    assert all_bodies(store) == sorted([b"first", *rows, b"next"])


def test_older_copy_opened_after_reboot_is_detected(path, store, clock, tmp_path):
    """A copy of an open store looks as if the machine had crashed, but no crash has happened."""
    strictly(store, 0, ROWS)
    shutil.copytree(path, tmp_path / "copy")
    reboot(tmp_path / "copy")
    with Store.open(tmp_path / "copy", config=SMALL, clock=clock) as copy:
        assert copy.history.epoch == 1, "it was recovered"
        assert refused(copy, 2).code == "SINK_BATCH_GAP"


def test_gap_after_crash_of_the_machine_is_logged(path, store, clock, caplog):
    """Markers are not flushed, so a power failure may lose the last ones."""
    strictly(store, 0, ROWS)
    marker = path / "pyrocket" / "sink" / query_key(QUERY)
    strictly(store, 1, [])
    as_on_disk = marker.read_bytes()
    strictly(store, 2, [])
    store.close(clean=False)
    marker.write_bytes(as_on_disk)
    reboot(path)
    with Store.open(path, config=SMALL, clock=clock) as again:
        clock.now += 1000
        assert strictly(again, 3, [b"next"]).rows == 1
        (logged,) = errors(caplog)
        assert "batch 2 is missing" in logged
        assert "machine has crashed" in logged
        clock.now += 1000
        assert refused(again, 6).code == "SINK_BATCH_GAP", "no marker has been lost since then"


def test_markers_are_durable_after_a_clean_shutdown(path, store, clock, monkeypatch):
    """After a reboot, nothing would show that a power failure has lost the markers."""
    marker, real, durable = path / "pyrocket" / "sink" / query_key(QUERY), io.sync, []

    def sync(descriptor):
        real(descriptor)
        if marker.exists() and os.path.samestat(os.fstat(descriptor), marker.stat()):
            durable.append(marker.read_bytes())

    monkeypatch.setattr(io, "sync", sync)
    strictly(store, 0, ROWS)
    strictly(store, 1, [])
    assert not durable
    store.close()
    assert durable == [marker.read_bytes()]
    with Store.open(path, read_only=True, clock=clock) as reader:
        strictly(reader, 2, [])
    assert durable[1:] == [marker.read_bytes()]


def test_recorded_batches_survive_a_killed_process(path, store, clock, caplog):
    strictly(store, 0, ROWS)
    strictly(store, 1, [])
    store.close(clean=False)
    with Store.open(path, config=SMALL, clock=clock) as again:
        assert refused(again, 3).code == "SINK_BATCH_GAP"
        assert strictly(again, 2, ROWS).rows == 40
    assert not errors(caplog)


@pytest.mark.parametrize("content", [b"", b"\0" * 192, b'{"version": 1}', b'{"version": 9}', b"[]"])
def test_an_unreadable_record_of_empty_batches_is_ignored(path, store, content):
    strictly(store, 0, ROWS)
    strictly(store, 1, [])
    marker = path / "pyrocket" / "sink" / query_key(QUERY)
    marker.write_bytes(content)
    assert refused(store, 2).code == "SINK_BATCH_GAP"
    assert strictly(store, 1, ROWS).rows == 40


def test_a_gap_after_a_batch_of_an_earlier_release_is_a_warning(store, monkeypatch, caplog):
    """The earlier release did not record batches without rows."""
    with an_earlier_release(monkeypatch):
        strictly(store, 0, ROWS)
    strictly(store, 4, [])
    strictly(store, 5, [b"next"])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert refused(store, 8).code == "SINK_BATCH_GAP"


def test_a_query_can_continue_from_a_checkpoint_before_its_last_batches_without_rows(store):
    """The numbers of these batches can be used again, because no rows were published."""
    strictly(store, 0, [b"0"])
    for number in (1, 2, 3):
        strictly(store, number, [])
    strictly(store, 2, [b"2"])
    assert refused(store, 4).code == "SINK_BATCH_GAP", "the markers belong to the abandoned batches"
    strictly(store, 3, [b"3"])
    assert all_bodies(store) == [b"0", b"2", b"3"]


def test_an_application_that_publishes_without_a_run_may_skip_batch_numbers(store, caplog):
    for number in (3, 7, 20):
        assert strictly(store, number, [b"%d" % number], run="").rows == 1
    assert not caplog.records


def test_a_batch_that_cannot_be_recorded_fails_with_an_error_that_names_the_file(
    store, monkeypatch
):
    def full(*given):
        raise OSError(28, "No space left on device")

    strictly(store, 0, ROWS)
    with monkeypatch.context() as patch:
        patch.setattr(io, "write_at", full)
        with pytest.raises(StoreUnavailableError) as caught:
            strictly(store, 1, [])
    assert caught.value.code == "WRITE_FAILED"


def test_markers_are_deleted_after_more_than_a_year(path, store, clock):
    strictly(store, 0, ROWS)
    strictly(store, 1, [])
    clock.now += FORGET_AFTER_MS + 1
    other = numbered(0, identity="other")
    store.sink.publish(other, [])
    store.append_batch(pa.record_batch({"body": [b"x"]}), topic="t")
    store.close()
    assert [file.name for file in (path / "pyrocket" / "sink").iterdir()] == [query_key("other")]


@pytest.mark.parametrize("saved", [3, 4], ids=["in the tail", "the last in the file"])
def test_queries_continue_after_a_damaged_publish_record_was_replaced_by_a_placeholder(
    path, store, clock, caplog, saved
):
    """`repair` writes the placeholder; the ledger file may still contain the batch."""
    ledger, kept = path / "pyrocket" / "sink.json", b""
    for number in range(5):
        if number == saved:
            with inner(store).writer.exclusive():
                store.sink._ledger.save()
            kept = ledger.read_bytes()
        strictly(store, number, [b"%d" % number])
    place = int(inner(store).reader.log_offsets_at(SINK_TOPIC, 0, np.array([3]))[0])
    store.close()
    ledger.write_bytes(kept)
    file = path / "commitlog" / file_name(place - place % 4096)
    overwrite(file, bytes([file.read_bytes()[place % 4096 + 100] ^ 1]), place % 4096 + 100)
    reboot(path)
    assert repair(path).after.ok
    with Store.open(path, config=SMALL, clock=clock) as store:
        assert strictly(store, 5, [b"5"]).rows == 1
        assert refused(store, 7).code == "SINK_BATCH_GAP"
        assert all_bodies(store) == [b"%d" % number for number in range(6)]
    assert any("publish record 3 is damaged" in line for line in errors(caplog)) == (saved == 3)


# Another store


@pytest.mark.parametrize("rows", [ROWS, []], ids=["rows", "no rows"])
def test_store_without_earlier_batches_of_the_query_is_rejected(store, rows):
    error = refused(store, 3, rows)
    assert error.code == "SINK_STORE_CHANGED"
    assert store.uuid in error.message
    assert str(store.path) in error.message
    assert all_bodies(store) == []


def test_another_store_can_be_accepted(store, caplog):
    strictly(store, 3, ROWS, on_gap="accept")
    assert len(errors(caplog)) == 1
    strictly(store, 4, ROWS)
    assert len(errors(caplog)) == 1


def test_query_can_continue_with_another_topic_and_return(store, reader, caplog):
    """The batches of all topics are considered, including batches without rows."""
    course = [("t", []), ("u", [b"1"]), ("u", []), ("t", [b"3"]), ("u", []), ("t", [b"5"])]
    for number, (topic, rows) in enumerate(course):
        one = SinkBatch(identity=QUERY, target=topic, batch=number, run=f"run-{number}")
        staged = stage_tasks(store, one, rows, topic=topic) if rows else []
        (store if rows else reader).sink.publish(one, staged)
    assert not caplog.records
    one = SinkBatch(identity=QUERY, target="u", batch=8, run="run-8")
    with pytest.raises(SinkError, match="SINK_BATCH_GAP"):
        store.sink.publish(one, stage_tasks(store, one, ROWS, topic="u"))


# What the sum of a batch covers


COLUMNS = {
    "tags": pa.array(["a", "b"]),
    "keys": pa.array(["k1", "k2"]),
    "properties": pa.array([[("p", "1")], [("p", "2")]], pa.map_(pa.string(), pa.string())),
    "shardingKey": pa.array(["s1", "s2"]),
    "flag": pa.array([1, 2], pa.int32()),
    "delayLevel": pa.array([1, 2], pa.int32()),
    "delay": pa.array(["1h", "2h"]),
    "deliverTimestamp": pa.array([1_700_000_001_000, None], pa.timestamp("ms", "UTC")),
}


def staged_sum(store, swapped=False, **columns):
    taken = {name: column[::-1] if swapped else column for name, column in columns.items()}
    return stage(store, numbered(0), [b"x", b"y"], **taken).content


@pytest.mark.parametrize("name", COLUMNS)
def test_the_sum_covers_every_attribute(store, name):
    """Sums differ even if two rows have only exchanged the values of an attribute."""
    column = {name: COLUMNS[name]}
    known = staged_sum(store, **column)
    assert known == staged_sum(store, **column)
    assert known != staged_sum(store)
    assert known.bytes > staged_sum(store).bytes
    assert known != staged_sum(store, swapped=True, **column)


def test_the_sum_covers_queue_ids_and_the_topic_column(store):
    known = {staged_sum(store, queue_id=[0, 1]), staged_sum(store, queue_id=[1, 0])}
    known |= {
        stage(store, numbered(0), [b"x", b"y"], topics=topics).content
        for topics in (["t", "u"], ["u", "t"])
    }
    assert len(known | {staged_sum(store)}) == 5


def test_the_sum_of_rows_with_null_attributes_equals_that_of_rows_without_attributes(store):
    nothing = pa.array([None, None], pa.string())
    empty = pa.array(["", ""])
    known = staged_sum(store)
    assert staged_sum(store, tags=nothing, keys=nothing, shardingKey=empty) == known


def test_the_sum_ignores_order_and_split_of_an_exact_replay(path, clock):
    """The sum also ignores the send time, selected queues, and whether a due time has passed."""
    big = [b"z" * 9000, b"x", b"y"]
    columns = {"deliverTimestamp": pa.array([clock.now + 5] * 3, pa.timestamp("ms", "UTC"))}
    with Store.open(path, read_only=True, clock=clock) as store:
        known = stage(store, numbered(0), big, **columns)
    later = FakeClock(clock.now + 1_000)
    with Store.open(path, read_only=True, clock=later) as store:
        again = stage(store, numbered(0), big[::-1], **columns)
        assert known.content == again.content
        assert known.bytes != again.bytes, "fewer properties"
        parts = [
            stage(store, numbered(0), [body], deliverTimestamp=columns["deliverTimestamp"][:1])
            for body in big
        ]
        total = parts[0].content.plus(parts[1].content).plus(parts[2].content)
        assert total == known.content
