"""The retention is saved in the directory, and every writer applies it."""

import logging
from dataclasses import replace

import pytest
from pyrocket import Retention, Store
from pyrocket.errors import StoreDamagedError, StoreUnavailableError
from pyrocket.tools.verify.verify import verify
from support.sinks import numbered, stage
from support.stores import SMALL, batch, bodies, log_files, message, set_disk_usage

HOUR_MS = 3_600_000
ALWAYS = tuple(range(24))
KEPT = Retention(hours=5, at_hours=ALWAYS)


def filled(path, clock, **config):
    store = Store.open(path, create=True, config=replace(SMALL, **config), clock=clock)
    store.topics.create("t", read_queues=1, write_queues=1)
    store.append_batch(batch([b"." * 900] * 20, 0), topic="t")
    return store


def write_late(path, clock, hours=6, config=SMALL):
    """After `hours`, append with a new writer; return how many log files are left."""
    clock.now += hours * HOUR_MS
    with Store.open(path, config=config, clock=clock) as store:
        store.append(message(b"late", queue_id=0))
        clock.now += 10_001
        store.append(message(b"later", queue_id=0))
    return len(log_files(path))


def test_all_writers_follow_the_retention_given_at_creation(path, clock):
    filled(path, clock, retention=KEPT).close()
    assert len(log_files(path)) > 4
    with Store.open(path, read_only=True) as store:
        assert store.retention == KEPT
    assert write_late(path, clock) <= 2


def test_without_a_retention_no_message_is_deleted(path, clock):
    filled(path, clock).close()
    count = len(log_files(path))
    assert write_late(path, clock, 10_000) >= count
    with Store.open(path, read_only=True) as store:
        assert store.retention is None


def test_a_retention_given_at_a_later_open_applies_only_to_this_process(path, clock):
    filled(path, clock).close()
    assert write_late(path, clock, config=replace(SMALL, retention=KEPT)) <= 2
    with Store.open(path, read_only=True) as store:
        assert store.retention is None


def test_an_open_writer_applies_a_new_retention_within_ten_seconds(path, clock):
    with filled(path, clock) as open_long:
        count = len(log_files(path))
        clock.now += 6 * HOUR_MS
        open_long.append(message(b"late", queue_id=0))
        with Store.open(path, config=SMALL, clock=clock) as other:
            other.set_retention(KEPT)
        clock.now += 10_001
        open_long.append(message(b"later", queue_id=0))
        assert len(log_files(path)) < count


def test_a_retention_may_be_changed_and_removed(path, clock):
    with filled(path, clock, retention=KEPT) as store:
        changed = Retention(hours=None, total_bytes=10**9, full_ratio=0.99)
        store.set_retention(changed)
        assert store.retention == changed
        store.set_retention(None)
        assert store.retention is None
    count = len(log_files(path))
    assert write_late(path, clock, 10_000) >= count


def test_a_limit_of_bytes_deletes_nothing_by_age(path, clock):
    limit = 3 * SMALL.log_file_bytes
    filled(path, clock, retention=Retention(hours=None, total_bytes=limit)).close()
    assert write_late(path, clock, 10_000) == 3


def test_a_manual_cleaning_uses_the_retention(path, clock):
    with filled(path, clock, retention=Retention(hours=5, at_hours=())) as store:
        clock.now += 6 * HOUR_MS
        preview = store.clean(dry_run=True)
        assert preview.removals
        assert store.clean().removals == preview.removals


def test_a_killed_creation_leaves_no_retention(path, clock, monkeypatch):
    def die(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pyrocket.engine.writer.create_identity", die)
        with pytest.raises(KeyboardInterrupt):
            Store.open(path, create=True, config=replace(SMALL, retention=KEPT), clock=clock)
    assert (path / "pyrocket" / "retention.json").exists()
    with filled(path, clock) as store:
        assert store.retention is None


def test_a_snapshot_has_the_retention_of_its_source(path, clock, tmp_path):
    with filled(path, clock, retention=KEPT) as store:
        store.snapshot(tmp_path / "copy")
    with Store.open(tmp_path / "copy", read_only=True) as copy:
        assert copy.retention == KEPT


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"hours": -1}', '{"hours": "x", "at_hours": [4]}', '{"at_hours": [99]}']
)
def test_an_unreadable_retention_file_is_reported_and_nothing_is_deleted(path, clock, text):
    filled(path, clock, retention=KEPT).close()
    count = len(log_files(path))
    (path / "pyrocket" / "retention.json").write_text(text)
    with pytest.raises(
        StoreDamagedError, match=r"retention\.json cannot be parsed.*store retention"
    ):
        Store.open(path, config=SMALL, clock=clock)
    assert "CONFIG_BROKEN" in {found.code for found in verify(path).findings}
    (path / "pyrocket" / "retention.json").unlink()
    assert write_late(path, clock, 10_000) >= count


# The disk


def free(monkeypatch, count, total=1 << 40):
    """Simulate a disk with this number of free bytes."""
    set_disk_usage(monkeypatch, total - count, total, unit=1)


def test_a_store_without_a_retention_accepts_rows_while_two_log_files_fit(path, clock, monkeypatch):
    """The usage ratio does not matter: a laptop that is 91 % full may have 80 GB free."""
    with filled(path, clock) as store:
        room = 2 * SMALL.log_file_bytes
        row = message(b"x" * 100, queue_id=0)
        free(monkeypatch, room - 1)
        with pytest.raises(StoreUnavailableError, match=r"8\.0 KiB free.*4\.0 KiB") as caught:
            store.append(row)
        assert caught.value.code == "DISK_FULL"
        assert caught.value.put_status == "SERVICE_NOT_AVAILABLE"
        free(monkeypatch, room + 1000)
        store.append(row)


def test_staged_rows_must_fit_in_addition_to_two_log_files(path, clock, monkeypatch):
    with filled(path, clock) as store:
        one = numbered(0)
        staged = stage(store, one, [b"." * 900] * 10)
        free(monkeypatch, 2 * SMALL.log_file_bytes + staged.bytes - 1)
        before = bodies(store)
        with pytest.raises(StoreUnavailableError, match="DISK_FULL"):
            store.sink.publish(one, [staged])
        assert bodies(store) == before
        free(monkeypatch, 2 * SMALL.log_file_bytes + staged.bytes)
        assert store.sink.publish(one, [staged]).rows == 10


def test_a_store_without_a_retention_warns_once_above_ninety_percent(
    path, clock, monkeypatch, caplog
):
    with filled(path, clock) as store:
        free(monkeypatch, 80 << 30, total=1 << 40)
        for _ in range(3):
            clock.now += 10_001
            store.append(message(b"x", queue_id=0))
        (warned,) = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert "92 % full (80.0 GiB free)" in warned.getMessage()
        assert "pyrocket store retention" in warned.getMessage()


def test_with_a_retention_the_disk_usage_ratios_apply(path, clock, monkeypatch):
    with filled(path, clock, retention=Retention(hours=None)) as store:
        free(monkeypatch, 80 << 30, total=1 << 40)
        with pytest.raises(StoreUnavailableError, match="92% full; above 90%"):
            store.append(message(b"x", queue_id=0))
