"""Fixtures for tests of the store without Spark."""

import pytest
from pyrocket import Store
from pyrocket.disk import io
from stores import SMALL, FakeClock


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Nothing here takes the power away, so an fsync is only slow."""
    monkeypatch.setattr(io, "sync", lambda descriptor: None)
    monkeypatch.setattr(io, "sync_directory", lambda path: None)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def open_store(path, clock):
    """Opens the store at `path`, made if it is missing; all are closed at the end."""
    opened = []

    def open_one(**options):
        options = {"create": not options.get("read_only", False), "config": SMALL} | options
        opened.append(Store.open(path, clock=clock, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def store(open_store):
    return open_store()
