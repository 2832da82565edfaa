"""The unindexed end of the log is searched once, at any size."""

import numpy as np
import pytest
from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.index_file import key_hash
from pyrocket.index.keys import key_search
from pyrocket.index.keys.key_search import UnindexedTail
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from support.inner import inner
from support.stores import log_files, message, overwrite


@pytest.fixture
def some(open_store):
    store = open_store()
    sent = [store.append(message(b"%d" % at, keys=["k", f"k{at}"])) for at in range(100)]
    log = inner(store).writer.files.log
    return log, [one.physical_offset for one in sent], inner(store).writer.page[PUBLISHED]


def search(tail, key, *given):
    """Return log offsets of messages that may have the key, newest first."""
    return tail.search(np.array([key_hash("t", key)]), *given)[::-1].tolist()


@pytest.mark.parametrize("kept", [0, 30, 10**6])
def test_keys_that_exceed_the_cache_are_found(some, kept):
    log, offsets, end = some
    tail = UnindexedTail(log, kept_items=kept)
    for _ in range(3):
        assert search(tail, "k", offsets[0], end, 1) == offsets[::-1]
        assert search(tail, "k99", offsets[0], end, 1) == [offsets[99]]
        assert search(tail, "k3", offsets[0], end, 1) == [offsets[3]]


def test_a_search_continues_at_the_end_of_the_last_one(some, monkeypatch):
    log, offsets, _ = some
    tail, walked = UnindexedTail(log), []
    real = key_search.walk
    monkeypatch.setattr(
        key_search,
        "walk",
        lambda log, start, end: (walked.append(start), real(log, start, end))[1],
    )
    for count in (10, 10, 50, 99):
        found = search(tail, "k", offsets[5], offsets[count], 1)
        assert found == offsets[5:count][::-1]
    assert walked == [offsets[5], offsets[10], offsets[10], offsets[50]]


def test_cached_keys_that_have_been_indexed_in_the_meantime_are_removed_from_the_cache(some):
    log, offsets, end = some
    tail = UnindexedTail(log)
    assert search(tail, "k", offsets[0], end, 1) == offsets[::-1]
    assert search(tail, "k", offsets[60], end, 1) == offsets[:59:-1]
    assert len(tail._known.offsets) == 3 * 40
    assert search(tail, "k", offsets[10], end, 1) == offsets[:9:-1]


def test_log_that_ends_early_is_damaged_unless_its_end_is_unknown(some, path):
    log, offsets, end = some
    overwrite(log_files(path)[offsets[50] // 4096 - 1], b"\xff" * 8, offsets[50] % 4096)
    with pytest.raises(StoreDamagedError, match=str(end)):
        search(UnindexedTail(log), "k", offsets[0], end, 1)
    found = search(UnindexedTail(log), "k", offsets[0], WHOLE_LOG, None)
    assert found == offsets[49::-1]


def test_a_search_skips_log_files_that_a_cleaning_has_deleted(some, path):
    log, offsets, end = some
    for file in log_files(path)[:2]:
        file.unlink()
    found = search(UnindexedTail(log), "k", offsets[0], end, 1)
    assert found == [offset for offset in offsets if offset >= 3 * 4096][::-1]
