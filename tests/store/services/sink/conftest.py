"""A store with topic t, two queues, and a clock that does not advance."""

import pytest
from pyrocket import Store
from support.stores import SMALL, FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path, clock):
    with Store.open(tmp_path / "store", create=True, config=SMALL, clock=clock) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
    return tmp_path / "store"


@pytest.fixture
def store(path, clock):
    with Store.open(path, config=SMALL, clock=clock) as one:
        yield one


@pytest.fixture
def reader(path, clock):
    with Store.open(path, read_only=True, clock=clock) as one:
        yield one
