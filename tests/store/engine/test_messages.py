"""`Store.messages`: all messages of a topic, queue by queue, up to its end at the call."""

import os
import tracemalloc
from itertools import islice

import pytest
from pyrocket import StoreConfig
from pyrocket.errors import (
    InvalidInputError,
    OffsetOutOfRangeError,
)
from support.stores import batch, filled, message, numbered


@pytest.fixture
def two_queues(path):
    """Queue 0 with 100 messages, queue 1 with 40."""
    with filled(path, count=100) as store:
        store.topics.update("t", read_queues=2, write_queues=2)
        store.append_batch(batch(numbered(40), 1), topic="t")
        yield store


def places(messages):
    return [(one.queue_id, one.queue_offset) for one in messages]


def test_messages_returns_all_messages_of_a_topic_queue_by_queue(two_queues):
    expected = [(0, offset) for offset in range(100)] + [(1, offset) for offset in range(40)]
    assert places(two_queues.messages("t")) == expected


def test_messages_ends_at_the_end_of_the_topic_when_it_was_called(two_queues):
    all_of_it = two_queues.messages("t")
    two_queues.append(message(queue_id=0))
    first = places(islice(all_of_it, 3))
    two_queues.append(message(queue_id=1))
    assert len(first + places(all_of_it)) == 140


def test_messages_of_one_queue_and_range(two_queues):
    assert len(places(two_queues.messages("t", 1))) == 40
    assert places(two_queues.messages("t", 1, 10, 12)) == [(1, 10), (1, 11)]
    assert places(two_queues.messages("t", 1, 38)) == [(1, 38), (1, 39)]
    assert places(two_queues.messages("t", 1, end=2)) == [(1, 0), (1, 1)]
    assert places(two_queues.messages("t", 0, 100)) == []


def test_messages_and_read_return_the_same_messages(two_queues):
    assert [*two_queues.messages("t", 0)] == two_queues.read("t", 0, 0, 100)


def test_messages_of_a_removed_queue_are_read_by_queue_id(two_queues):
    two_queues.topics.update("t", read_queues=1, write_queues=1)
    assert len(places(two_queues.messages("t"))) == 100
    assert len(places(two_queues.messages("t", 1))) == 40


def test_offsets_without_a_queue_are_rejected(two_queues):
    with pytest.raises(InvalidInputError, match="QUEUE_MISSING"):
        two_queues.messages("t", end=3)


def test_messages_deleted_before_they_are_read_raise_an_error(aged):
    rest = aged.messages("t")
    aged.clean(hours=1)
    with pytest.raises(OffsetOutOfRangeError):
        list(rest)


def test_messages_uses_a_few_mib_of_memory_for_a_topic_of_any_size(open_store):
    store = open_store(config=StoreConfig(log_file_bytes=1 << 26))
    store.topics.create("t", read_queues=1, write_queues=1)
    for _ in range(4):
        store.append_batch(batch([os.urandom(1 << 20)] * 8, 0), topic="t")
    tracemalloc.start()
    count = sum(len(one.body) >> 20 for one in store.messages("t"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 32
    assert peak < 16 << 20
