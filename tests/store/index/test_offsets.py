"""Sizes and locations of ranges of a queue."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket import ByteSpan, Store
from support.inner import inner
from support.slices import cuts_of, span_of
from support.stores import SMALL, batch, filled

LENGTHS = [1, 500, 2, 3, 900, 5, 0, 7, 30, 300, 11]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Messages of all lengths in queue 0, ten per queue file, with other messages between them."""
    path = tmp_path_factory.mktemp("bytes") / "store"
    with Store.open(path, create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        for _ in range(3):
            for length in LENGTHS:
                store.append_batch(batch([b"x" * length, b"yy"], [0, 1]), topic="t")
    with Store.open(path, read_only=True, config=SMALL) as store:
        yield store


@pytest.fixture(scope="module")
def sizes(store):
    """The sizes of the messages of queue 0 in the log."""
    (messages,) = [store.read("t", 0, 0, 100)]
    return [message.store_size for message in messages]


@given(data=st.data())
def test_each_result_is_the_last_offset_within_the_number_of_bytes(store, sizes, data):
    start = data.draw(st.integers(0, len(sizes)))
    end = data.draw(st.integers(start, len(sizes)))
    marks = sorted(data.draw(st.lists(st.integers(0, 2 * sum(sizes)), max_size=6)))
    sums = [0, *itertools.accumulate(sizes[start:end])]
    expected = [max((n, total) for n, total in enumerate(sums) if total <= mark) for mark in marks]
    found = cuts_of(store, "t", 0, start, end, marks=marks)
    assert found == [(start + count, total) for count, total in expected]


def test_entries_of_a_long_range_are_read_in_parts_and_only_as_far_as_needed(tmp_path, monkeypatch):
    with filled(tmp_path / "store", count=5_000, body_bytes=8, config=None) as store:
        size = store.read("t", 0, 0, 1)[0].store_size
        marks = [size * at for at in (1, 1_023, 1_024, 1_025, 4_999)]
        found = cuts_of(store, "t", 0, 0, 5_000, marks=marks)
        assert [offset for offset, _ in found] == [1, 1_023, 1_024, 1_025, 4_999]
        queue = inner(store).reader.files.queues.get("t", 0)
        read = []
        entries = queue.entries
        monkeypatch.setattr(queue, "entries", lambda a, b: read.append(b - a) or entries(a, b))
        cuts_of(store, "t", 0, 0, 5_000, marks=[size * 100])
        assert read == [1_024]


def test_a_span_is_exact_for_few_messages_and_has_their_location(store, sizes):
    first, last = store.read("t", 0, 2, 1)[0], store.read("t", 0, 32, 1)[0]
    assert span_of(store, "t", 0, 2, 33) == ByteSpan(
        first.physical_offset, last.physical_offset + last.store_size, sum(sizes[2:])
    )
    assert span_of(store, "t", 0, 2, 33).bytes == sum(sizes[2:])


def test_the_span_of_many_messages_is_estimated_from_three(tmp_path):
    with filled(tmp_path / "store", count=1_000, config=None) as store:
        size = store.read("t", 0, 0, 1)[0].store_size
        span = span_of(store, "t", 0, 0, 1_000)
        assert span.bytes == 1_000 * size == span.end - span.start


@pytest.mark.parametrize(("start", "end"), [(5, 5), (40, 50), (10**6, 10**6 + 9_999)])
def test_the_span_of_no_messages_is_empty(store, start, end):
    assert span_of(store, "t", 0, start, end) == ByteSpan(0, 0, 0)
    assert cuts_of(store, "t", 0, start, end, marks=[0, 100]) == [(start, 0)] * 2
