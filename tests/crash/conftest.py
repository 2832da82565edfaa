"""Fixtures of tests that kill processes."""

import pytest
from crash.nursery import Nursery
from pyrocket import Store
from support.stores import SMALL


@pytest.fixture(scope="session")
def nursery(checkout_in_children):
    one = Nursery()
    yield one
    one.close()


@pytest.fixture
def path(tmp_path, request):
    """Creates a store with topic t of two queues, and with small files or files of the given
    sizes.
    """
    config = getattr(request, "param", SMALL)
    with Store.open(tmp_path / "store", create=True, config=config) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
    return tmp_path / "store"


@pytest.fixture
def diaries(tmp_path):
    (tmp_path / "diaries").mkdir()
    return tmp_path / "diaries"
