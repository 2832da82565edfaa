"""Fixtures for tests of the store without Spark."""

import shutil

import pytest
from pyrocket import Store
from pyrocket.engine import recovery
from support.stores import (
    SMALL,
    FakeClock,
    batch,
    filled,
    message,
    next_boot,
    numbered,
    set_disk_usage,
)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(quick_disk):
    """These tests have no power losses."""


@pytest.fixture(autouse=True)
def room_on_the_disk(monkeypatch):
    """Ignore the machine's disk usage; tests in `crash` use a disk that is really full."""
    set_disk_usage(monkeypatch, 100)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def at_open():
    """The functions that `open_store` calls with each store that it opens."""
    return []


@pytest.fixture
def open_store(path, clock, at_open):
    """Opens the store at `path`, creating it if missing; all stores are closed at the end."""
    opened = []

    def open_one(**options):
        options = {"create": not options.get("read_only", False), "config": SMALL} | options
        opened.append(Store.open(path, clock=clock, **options))
        for prepare in at_open:
            prepare(opened[-1])
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def store(open_store):
    return open_store()


@pytest.fixture(scope="session")
def image_of_aged(tmp_path_factory):
    path, clock = tmp_path_factory.mktemp("aged") / "store", FakeClock()
    with filled(path, count=0, clock=clock) as store:
        store.topics.create("idle", read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(15, 50), 0), topic="idle")
        for body in numbered(100):
            store.append(message(body, queue_id=0))
            clock.now += 3_600_000
    return path, clock.now


@pytest.fixture
def aged(path, clock, image_of_aged):
    """Topic t has one queue with 100 messages an hour apart; topic idle has 15 at the start."""
    image, clock.now = image_of_aged
    shutil.copytree(image, path)
    with Store.open(path, config=SMALL, clock=clock) as store:
        yield store


@pytest.fixture
def recoveries(monkeypatch):
    """Counts the recoveries that read the log."""
    done, real = [], recovery.recover

    def recover(log, dispatcher, page, evidence, **hooks):
        done.append(evidence.clean)
        return real(log, dispatcher, page, evidence, **hooks)

    monkeypatch.setattr(recovery, "recover", recover)
    return done


@pytest.fixture(params=[next_boot, bool], ids=["next boot", "same boot"])
def trusted(tmp_path, request, recoveries):
    """A cleanly closed store with 40 messages in each of two queues and a valid shared state."""
    path = tmp_path / "store"
    with filled(path) as store:
        store.topics.update("t", read_queues=2, write_queues=2)
        store.append_batch(batch(numbered(40), 1), topic="t")
    request.param(path)
    recoveries.clear()
    return path
