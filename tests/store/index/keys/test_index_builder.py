"""The key index of a store in use follows appends and is complete after a clean shutdown."""

import logging
import os

import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.errors import StoreDamagedError, StoreUnavailableError
from support.inner import inner
from support.keyed import (
    OFF,
    check_queries,
    checkpointed,
    contents,
    fill,
    index_of,
    indexed_end,
    java,
)
from support.stores import log_files, numbered, overwrite, reboot, snapshot


def test_the_index_is_not_built_before_enough_keys_are_pending(store, path):
    fill(store)
    assert contents(path) == []
    check_queries(store, 100)


def test_a_clean_shutdown_completes_the_index(open_store, path, clock):
    store = open_store()
    fill(store)
    clock.now += 5000
    fill(store, 1, 100)
    expected = java(store)
    store.close()
    assert contents(path) == expected
    full = index_of(path).full_until()
    assert full
    assert checkpointed(path) == full
    check_queries(open_store(read_only=True), 101)


def test_building_continues_after_a_reboot(open_store, path):
    store = open_store()
    fill(store)
    store.close()
    before = contents(path)
    reboot(path)
    store = open_store()
    assert contents(path) == before
    fill(store, 20, 100)
    store.close()
    store = open_store()
    assert contents(path) == java(store)


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="/proc is needed to find the paths of descriptors"
)
def test_an_index_that_cannot_be_written_does_not_fail_the_append(
    eager, store, path, monkeypatch, caplog
):
    fill(store, 10)
    real = io.write_at

    def no_room(descriptor, data, offset):
        if "/index/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, "No space left on device")
        real(descriptor, data, offset)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(io, "write_at", no_room)
        fill(store, 10, 10)
        check_queries(store, 20)
        with pytest.raises(StoreUnavailableError, match="No space left") as caught:
            inner(store).keys.complete()
        assert caught.value.code == "WRITE_FAILED"
    assert "key index" in caplog.text
    fill(store, 10, 20)
    assert contents(path) == java(store)
    check_queries(store, 30)


def test_without_a_key_index_nothing_is_built_and_queries_read_the_log(eager, open_store, path):
    store = open_store(config=OFF)
    fill(store)
    check_queries(store, 100)
    store.close()
    assert contents(path) == []
    store = open_store()
    fill(store, 1, 100)
    assert contents(path) == java(store)


def test_no_index_is_built_before_the_first_append_to_an_opened_store(eager, open_store, path):
    """Until then there is no file `abort`: an incomplete index would be valid after a crash."""
    store = open_store(config=OFF)
    fill(store)
    store.close()
    store = open_store()
    store.topics.create("other")
    assert contents(path) == []
    fill(store, 1, 100)
    assert contents(path) == java(store)


def test_a_damaged_log_is_indexed_up_to_the_damage(open_store, path, caplog):
    store = open_store(config=OFF)
    fill(store)
    damaged = store.read("t", 0, 50)[0].physical_offset
    store.close(clean=False)
    store = open_store()
    overwrite(log_files(path)[damaged // 4096 - 1], b"\xff" * 8, damaged % 4096)
    store.close()
    assert "is incomplete" in caplog.text
    assert not (path / "abort").exists()
    store = open_store()
    with pytest.raises(StoreDamagedError):
        store.lookup.query("t", "k0")
    assert indexed_end(index_of(path)) < damaged


def test_a_reader_changes_nothing(open_store, path):
    store = open_store()
    fill(store)
    store.close(clean=False)
    before = snapshot(path)
    for _ in range(2):
        with Store.open(path, read_only=True) as reader:
            check_queries(reader, 100)
        assert snapshot(path) == before


def test_index_files_before_the_start_of_the_log_are_deleted(eager, open_store, path):
    store = open_store()
    fill(store, 200)
    names = index_of(path).names()
    *cleaned, last = log_files(path)
    start = int(last.name)
    for file in cleaned:
        file.unlink()
    with inner(store).writer.exclusive():
        gone = inner(store).keys.index.remove_below(start)
    assert 0 < gone < len(names)
    assert index_of(path).names() == names[gone:]
    assert [found.body for found in store.lookup.query("t", "k199")] == numbered(1, 20, 199)
