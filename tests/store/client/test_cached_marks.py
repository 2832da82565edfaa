"""Marks that are cached in memory."""

import pytest
from pyrocket.client.deduplication.cache import CachedMarks
from pyrocket.client.deduplication.sqlite import SqliteMarks
from pyrocket.client.deduplication.store import Mark
from pyrocket.errors import InvalidInputError, StoreUnavailableError

LEASE_MS, KEEP_MS = 1000, 60_000


class Counted(SqliteMarks):
    """Records the keys that were looked up in the file."""

    def __init__(self, path):
        super().__init__(path, group="billing")
        self.asked, self.broken = [], False

    def begin(self, keys, owner, now, lease_ms):
        self.asked += keys
        return super().begin(keys, owner, now, lease_ms)

    def done(self, keys, owner, now, keep_ms):
        if self.broken:
            raise StoreUnavailableError("the disk is full")
        super().done(keys, owner, now, keep_ms)


@pytest.fixture
def inner(tmp_path):
    with Counted(tmp_path / "marks.db") as store:
        yield store


def consume(store, *keys, now=0, keep_ms=KEEP_MS):
    """Begin keys and mark those that are begun as done; return the keys that were begun."""
    marks = store.begin(keys, "me", now, LEASE_MS)
    begun = [key for key, mark in zip(keys, marks, strict=True) if mark is Mark.BEGUN]
    store.done(begun, "me", now, keep_ms)
    return begun


def test_a_recent_duplicate_is_recognised_without_the_inner_store(inner):
    cached = CachedMarks(inner)
    assert consume(cached, "a") == ["a"]
    assert consume(cached, "a") == []
    assert inner.asked == ["a"]


def test_only_keys_that_are_not_cached_are_looked_up(inner):
    cached = CachedMarks(inner)
    consume(cached, "b")
    assert consume(cached, "a", "b", "c") == ["a", "c"]
    assert inner.asked == ["b", "a", "c"]


def test_a_cached_key_expires(inner):
    cached = CachedMarks(inner, keep_ms=10)
    consume(cached, "a")
    assert consume(cached, "a", now=10) == []
    assert inner.asked == ["a", "a"]


def test_a_key_is_cached_no_longer_than_its_mark_is_kept(inner):
    cached = CachedMarks(inner, keep_ms=KEEP_MS)
    consume(cached, "a", keep_ms=10)
    assert consume(cached, "a", now=10) == ["a"]


def test_a_duplicate_found_in_the_inner_store_is_cached(inner):
    consume(inner, "a")
    cached = CachedMarks(inner)
    inner.asked.clear()
    assert [*consume(cached, "a"), *consume(cached, "a")] == []
    assert inner.asked == ["a"]


def test_the_oldest_keys_are_removed_if_the_cache_is_full(inner):
    cached = CachedMarks(inner, size=2)
    consume(cached, "a", "b", "c")
    inner.asked.clear()
    assert consume(cached, "a", "b", "c") == []
    assert inner.asked == ["a"]


def test_a_key_whose_mark_was_not_stored_is_not_cached(inner):
    cached = CachedMarks(inner)
    inner.broken = True
    with pytest.raises(StoreUnavailableError):
        consume(cached, "a")
    inner.broken = False
    assert consume(cached, "a", now=LEASE_MS) == ["a"]


def test_a_released_key_is_not_cached(inner):
    cached = CachedMarks(inner)
    cached.begin(["a"], "me", 0, LEASE_MS)
    cached.release(["a"], "me")
    assert consume(cached, "a") == ["a"]


def test_the_result_ends_at_the_first_busy_key(inner):
    cached = CachedMarks(inner)
    consume(cached, "a", "d")
    inner.begin(["b"], "other", 0, LEASE_MS)
    marks = cached.begin(["a", "b", "c", "d"], "me", 0, LEASE_MS)
    assert marks == [Mark.DONE, Mark.BUSY]


def test_expired_marks_of_the_inner_store_are_deleted(inner):
    cached = CachedMarks(inner)
    consume(cached, "a")
    assert cached.expire(KEEP_MS, 10) == 1


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ({"size": 0}, "DEDUPLICATION_CACHE"),
        ({"keep_ms": 0}, "DEDUPLICATION_CACHE"),
        ({"size": "1"}, "NOT_A_NUMBER"),
        ({"keep_ms": None}, "NOT_A_NUMBER"),
    ],
)
def test_an_invalid_argument_is_an_error(inner, argument, code):
    with pytest.raises(InvalidInputError) as error:
        CachedMarks(inner, **argument)
    assert error.value.code == code
