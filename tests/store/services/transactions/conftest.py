"""A store, and a producer of group `pg` whose listener always answers UNKNOWN."""

import pytest
from support.halves import UNKNOWN, Listener, producer


@pytest.fixture
def store(open_store):
    return open_store()


@pytest.fixture
def listener():
    return Listener(UNKNOWN)


@pytest.fixture
def one(store, listener):
    with producer(store, "pg", listener) as one:
        yield one
