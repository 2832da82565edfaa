"""A reader delivers due messages if no writer has the store open, and writes nothing else."""

import logging
import os
import time

import pytest
from golden.java import CLEAN, GOLDEN, listing
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock
from support.delivering import bodies_of, delay
from support.inner import inner
from support.stores import SMALL, message, reboot, snapshot


@pytest.fixture
def reading(open_store, path, clock):
    """A store without writers, in which a message is due, and a reader of the store."""
    store = open_store()
    delay(store, 1, b"x")
    store.close(clean=False)
    clock.now += 1000
    return open_store(read_only=True)


@pytest.fixture
def patient(at_open):
    """Readers make no pause between two deliveries."""

    def without_pauses(store):
        delivery = inner(store).services.reader_delivery
        delivery.interval_seconds = delivery.after_failure_seconds = 0

    at_open.append(without_pauses)


def test_reader_delivers_due_messages_without_writers(patient, reading):
    assert reading.deliver_due()
    assert bodies_of(reading) == [b"x"]
    assert not reading.deliver_due()
    assert reading.read_only


def test_a_reader_delivers_after_a_reboot(open_store, path, clock, patient):
    store = open_store()
    delay(store, 1, b"x")
    store.close()
    clock.now += 1000
    reboot(path)
    reader = open_store(read_only=True)
    assert reader.deliver_due()
    assert bodies_of(reader) == [b"x"]


def test_a_reader_writes_at_most_once_a_second(open_store, reading, clock):
    delivery = inner(reading).services.reader_delivery
    assert delivery.interval_seconds == 1
    delivery.interval_seconds = 3600
    assert reading.deliver_due()
    store = open_store()
    delay(store, 1, b"y")
    inner(store).services.hooks.after_section.clear()
    store.close(clean=False)
    clock.now += 1000
    assert not reading.deliver_due()
    delivery._not_before = 0
    assert reading.deliver_due()


def test_reader_writes_nothing_if_no_message_is_due(open_store, path, clock, patient):
    store = open_store()
    store.append(message())
    store.close()
    reboot(path)
    before = snapshot(path)
    with open_store(read_only=True) as reader:
        assert not reader.deliver_due()
    assert snapshot(path) == before


def test_a_reader_does_not_deliver_while_a_broker_is_running(patient, reading, path):
    lock = FileLock(path / "lock")
    assert lock.try_lock()
    os.utime(path / "lock")
    assert not reading.deliver_due()
    lock.close()
    assert reading.deliver_due()


def test_reader_does_not_wait_for_write_lock_and_retries(reading, path):
    inner(reading).services.reader_delivery.interval_seconds = 0
    other = FileLock(Layout(path).mutex)
    assert other.try_lock()
    began = time.monotonic()
    assert not reading.deliver_due()
    assert time.monotonic() - began < 10
    other.close()
    assert reading.deliver_due()


def test_reader_does_not_deliver_without_permission(patient, reading, monkeypatch, caplog):
    def refused(*given, **options):
        raise PermissionError(13, "Permission denied")

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Store, "open", refused)
    assert not reading.deliver_due()
    assert "wait for a writer" in caplog.text


def test_a_reader_does_not_change_the_store_of_a_broker(tmp_path, clock):
    with Store.open(GOLDEN / CLEAN, read_only=True, config=SMALL) as store:
        before = listing(GOLDEN / CLEAN)
        assert not store.deliver_due()
        assert listing(GOLDEN / CLEAN) == before
