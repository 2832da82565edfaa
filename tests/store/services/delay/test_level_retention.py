"""Old log files are kept while they hold pending messages of delay levels."""

from dataclasses import replace

import pytest
from pyrocket.base.config import Retention
from pyrocket.engine.hooks import EVERYTHING_MAY_GO
from support.delivering import Driver, bodies_of, delay, waiting
from support.stores import SMALL, batch, log_files, numbered, set_disk_usage

HOUR = 3_600_000


def fill(store, count=60):
    """Fill about four log files."""
    store.append_batch(batch(numbered(count, 200), 0), topic="filler")


def test_log_file_with_pending_message_is_kept_until_delivery(open_store, path, clock):
    store = open_store()
    fill(store)
    delay(store, 17, b"x")
    fill(store)
    before = log_files(path)
    clock.now += HOUR - 1
    report = store.clean(hours=0)
    assert len(report.removals) > 2
    assert waiting(store, 17) == [b"x"]
    assert log_files(path)[0] in before[1:], "earlier files were deleted"
    clock.now += 1
    assert store.deliver_due()
    assert bodies_of(store) == [b"x"]
    kept = len(log_files(path))
    store.clean(hours=0)
    assert len(log_files(path)) < kept
    assert waiting(store, 17) == []


def test_log_files_are_kept_from_the_oldest_pending_message_of_all_levels(open_store, clock):
    store = open_store()
    driver = Driver(store)
    assert driver.levels.lowest_pending() == EVERYTHING_MAY_GO
    fill(store)
    delay(store, 2, b"first")
    first = driver.levels.lowest_pending()
    fill(store)
    delay(store, 1, b"second")
    assert driver.levels.lowest_pending() == first > 0
    clock.now += 5000
    driver.all()
    assert driver.levels.lowest_pending() == EVERYTHING_MAY_GO


def test_messages_in_deleted_log_files_are_skipped(open_store, path, clock):
    store = open_store()
    driver = Driver(store)
    delay(store, 1, b"lost")
    fill(store)
    driver.hooks.holds.clear()
    store.clean(hours=0)
    delay(store, 1, b"x")
    clock.now += 1000
    assert driver.all() == 1
    assert bodies_of(store) == [b"x"]


@pytest.mark.parametrize("full", [950, 500])
def test_full_disk_does_not_stop_delivery(open_store, clock, monkeypatch, full):
    """Pending messages keep their log files, so no file could be deleted if delivery stopped."""
    store = open_store(config=replace(SMALL, retention=Retention()))
    delay(store, 1, b"x")
    set_disk_usage(monkeypatch, full)
    clock.now += 1000
    assert store.deliver_due()
    assert bodies_of(store) == [b"x"]
