"""A primary and the place of its replica."""

import pytest
from pyrocket import Store
from support.replicas import MIDDLE


@pytest.fixture
def path(tmp_path):
    return tmp_path / "primary"


@pytest.fixture
def where(tmp_path):
    return tmp_path / "replica"


@pytest.fixture
def primary(path):
    store = Store.open(path, create=True, config=MIDDLE)
    store.topics.create("t", read_queues=2, write_queues=2)
    return store
