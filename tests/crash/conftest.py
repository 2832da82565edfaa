"""Fixtures of tests that kill processes."""

import pytest
from crash.nursery import Nursery
from pyrocket import Store
from pyrocket.disk import io
from support.stores import SMALL


@pytest.fixture(scope="session")
def nursery(checkout_in_children):
    one = Nursery()
    yield one
    one.close()


@pytest.fixture
def quick_disk(monkeypatch):
    """There are no power losses here, so an fsync is only slow."""
    monkeypatch.setattr(io, "sync", lambda descriptor: None)
    monkeypatch.setattr(io, "sync_directory", lambda path: None)


@pytest.fixture
def path(tmp_path, request):
    """A store of small files, or of the sizes given, with topic t, two queues."""
    config = getattr(request, "param", SMALL)
    with Store.open(tmp_path / "store", create=True, config=config) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
    return tmp_path / "store"


@pytest.fixture
def diaries(tmp_path):
    (tmp_path / "diaries").mkdir()
    return tmp_path / "diaries"
