"""A reader delivers due messages if no writer is open, and writes nothing else."""

import logging
import os
import time

import pytest
from golden.java import CLEAN, GOLDEN, listing
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock
from pyrocket.engine.reader_delivery import INTERVAL_SECONDS
from support.delivering import bodies_of, delay
from support.inner import inner
from support.stores import SMALL, message, reboot, snapshot


@pytest.fixture
def reading(open_store, path, clock):
    """A store without writers, in which a message is due, and a reader of it."""
    store = open_store()
    delay(store, 1, b"x")
    store.close(clean=False)
    clock.now += 1000
    return open_store(read_only=True)


@pytest.fixture
def patient(monkeypatch):
    """No pause between two deliveries in tests."""
    monkeypatch.setattr("pyrocket.engine.reader_delivery.INTERVAL_SECONDS", 0)
    monkeypatch.setattr("pyrocket.engine.reader_delivery._AFTER_FAILURE_SECONDS", 0)


def test_reader_delivers_due_messages_without_writers(reading, patient):
    assert reading.deliver_due()
    assert bodies_of(reading) == [b"x"]
    assert not reading.deliver_due()
    assert reading.read_only


def test_a_reader_delivers_in_another_boot(open_store, path, clock, patient):
    store = open_store()
    delay(store, 1, b"x")
    store.close()
    clock.now += 1000
    reboot(path)
    reader = open_store(read_only=True)
    assert reader.deliver_due()
    assert bodies_of(reader) == [b"x"]


def test_a_reader_writes_at_most_once_a_second(open_store, reading, clock, monkeypatch):
    assert INTERVAL_SECONDS == 1
    monkeypatch.setattr("pyrocket.engine.reader_delivery.INTERVAL_SECONDS", 3600)
    assert reading.deliver_due()
    store = open_store()
    delay(store, 1, b"y")
    inner(store).services.hooks.after_section.clear()
    store.close(clean=False)
    clock.now += 1000
    assert not reading.deliver_due()
    inner(reading).services.reader_delivery._not_before = 0
    assert reading.deliver_due()


def test_reader_does_not_open_store_without_due_messages(open_store, path, clock, patient):
    store = open_store()
    store.append(message())
    store.close()
    reboot(path)
    before = snapshot(path)
    with open_store(read_only=True) as reader:
        assert not reader.deliver_due()
    assert snapshot(path) == before


def test_reader_does_not_deliver_beside_java_broker(reading, path, patient):
    lock = FileLock(path / "lock")
    assert lock.try_lock()
    os.utime(path / "lock")
    assert not reading.deliver_due()
    lock.close()
    assert reading.deliver_due()


def test_reader_does_not_wait_for_write_lock_and_retries(reading, path, monkeypatch):
    monkeypatch.setattr("pyrocket.engine.reader_delivery.INTERVAL_SECONDS", 0)
    somebody = FileLock(Layout(path).mutex)
    assert somebody.try_lock()
    began = time.monotonic()
    assert not reading.deliver_due()
    assert time.monotonic() - began < 10
    somebody.close()
    assert reading.deliver_due()


def test_reader_does_not_deliver_without_permission(reading, patient, monkeypatch, caplog):
    def refused(*given, **options):
        raise PermissionError(13, "Permission denied")

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Store, "open", refused)
    assert not reading.deliver_due()
    assert "waits for a writer" in caplog.text


def test_reader_does_not_change_java_store(tmp_path, clock, patient):
    with Store.open(GOLDEN / CLEAN, read_only=True, config=SMALL) as store:
        before = listing(GOLDEN / CLEAN)
        assert not store.deliver_due()
        assert listing(GOLDEN / CLEAN) == before
