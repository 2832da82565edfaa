"""A RocketMQ broker changes the key index before it fails to acquire the lock of an open store.

Queries must find all keys at any time.
"""

import os

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import DISPATCHED, INDEXED
from pyrocket.formats.checkpoint import Checkpoint, encode_checkpoint
from pyrocket.index.keys.key_index import IndexChangedError, KeyIndex
from support.inner import inner
from support.keyed import (
    GEOMETRY,
    OFF,
    Refused,
    check_queries,
    checkpointed,
    contents,
    fill,
    index_of,
    java,
    limit_index,
)
from support.stores import reboot, words

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="the broker writes files through /proc/self/fd"
)


@pytest.fixture
def refused(path):
    """A broker that loads the store and recovers from the message with this number."""
    all_of_them = []

    def begin(store, number, more=0):
        start = store.read("t", 0, number)[0].physical_offset
        all_of_them.append(Refused(path, inner(store).writer.files.log, start, more))
        return all_of_them[-1]

    yield begin
    for one in all_of_them:
        one.ends()


def end_of(store):
    return inner(store).writer.page[DISPATCHED]


@pytest.mark.parametrize("more", [0, 1, 100])
def test_an_open_store_finds_all_keys(eager, open_store, path, refused, more):
    store, reader = open_store(), open_store(read_only=True)
    fill(store, 200)
    check_queries(reader, 200)
    broker = refused(store, 195, more)
    for one in (store, reader):
        check_queries(one, 200)
    broker.index_until(end_of(store))
    assert len(index_of(path).names()) > 0
    for one in (store, reader, open_store(read_only=True)):
        check_queries(one, 200)
    fill(store, 1, 200)
    assert contents(path) == java(store)
    for one in (store, reader):
        check_queries(one, 201)


@pytest.mark.parametrize("then", ["join", "clean", "copied", "unclean"])
def test_a_store_opened_later_finds_all_keys(eager, open_store, path, refused, then):
    store = open_store()
    fill(store, 200)
    broker = refused(store, 195, 1)
    broker.index_until(end_of(store))
    if then == "join":
        store.close(clean=False)
    elif then == "unclean":
        store.close(clean=False)
        reboot(path)
    else:
        store.close()
        assert contents(path) == java(open_store(read_only=True)), (
            "a clean shutdown completes the index"
        )
        refused(store := open_store(), 195, 1).index_until(end_of(store))
        store.close(clean=False)
        (path / "abort").unlink(missing_ok=True)
    if then == "copied":
        reboot(path)
    with Store.open(path, read_only=True) as reader:
        check_queries(reader, 200)
    store = open_store()
    check_queries(store, 200)
    fill(store, 1, 200)
    assert contents(path) == java(store)
    check_queries(store, 201)


def test_files_that_a_broker_is_still_building_are_not_continued(eager, open_store, path, refused):
    """Two writers of one file would overwrite each other's items."""
    store, reader = open_store(), open_store(read_only=True)
    fill(store, 200)
    broker = refused(store, 190)
    for first in range(200, 400, 20):
        broker.index_until(end_of(store))
        fill(store, 20, first)
        check_queries(reader, first + 20)
        check_queries(store, first + 20)
    broker.index_until(end_of(store))
    fill(store, 1, 400)
    assert contents(path) == java(store)
    check_queries(reader, 401)


def test_a_brokers_full_files_are_kept_if_they_have_no_gap(eager, store, path, refused):
    fill(store, 200)
    broker = refused(store, 0, 2)
    kept = len(index_of(path).names())
    broker.index_until(end_of(store))
    names = index_of(path).names()
    check_queries(store, 200)
    fill(store, 1, 200)
    again = index_of(path).names()
    assert again[:-1] == names[:-1]
    assert len(again) == len(names) > kept + 1
    assert not os.fstat(broker.made[-1]).st_nlink, "a file that is not full may still be written"
    check_queries(store, 201)


def test_an_index_file_of_a_pyrocket_writer_is_continued_by_other_and_later_writers(
    eager, open_store, path
):
    store, other = open_store(), open_store()
    fill(store, 100)
    names = index_of(path).names()
    fill(other, 1, 100)
    fill(store, 1, 101)
    assert index_of(path).names() == names
    store.close()
    other.close()
    reopened = open_store()
    fill(reopened, 1, 102)
    assert index_of(path).names() == names
    assert contents(path) == java(reopened)


def test_a_broker_s_last_file_is_continued_after_its_clean_shutdown(eager, open_store, path):
    """The broker had exclusive access and has exited."""
    store = open_store()
    fill(store, 100)
    store.close()
    (path / "lock").write_bytes(b"lock")
    reboot(path)
    last = index_of(path).path(index_of(path).names()[-1])
    data = last.read_bytes()
    last.unlink()
    last.with_name("20300101000000000").write_bytes(data)
    store = open_store()
    fill(store, 1, 100)
    assert index_of(path).names()[-1] == "20300101000000000"
    assert contents(path) == java(store)


def test_the_index_is_repaired_soon_even_with_few_appends(store, path, refused):
    limit_index(store, catch_up_bytes=1)
    fill(store, 200)
    limit_index(store)
    page = words(path)
    before = page[INDEXED]
    refused(store, 195, 1).index_until(end_of(store))
    fill(store, 1, 200)
    assert page[INDEXED] < before
    index = index_of(path)
    assert all(index.is_full(index.header(name)) for name in index.names())
    page.close()
    check_queries(store, 201)


def test_the_checkpoint_of_lost_files_is_lowered(eager, open_store, path, refused):
    store = open_store()
    fill(store, 200)
    store.close()
    before = checkpointed(path)
    assert before == index_of(path).full_until()
    store = open_store()
    fill(store, 1, 200)
    refused(store, 150, 100).index_until(end_of(store))
    check_queries(open_store(config=OFF), 201)
    assert checkpointed(path) < before


def test_a_query_is_repeated_if_index_files_are_deleted_during_the_search(
    eager, store, path, monkeypatch
):
    fill(store, 200)
    real, times = KeyIndex.search, []

    def disturbed(index, *given):
        times.append(len(given[-1]))
        if len(times) == 1:
            for name in index.names()[-2:]:
                index.path(name).unlink()
        return real(index, *given)

    monkeypatch.setattr(KeyIndex, "search", disturbed)
    check_queries(store, 200)
    assert times[1] == times[0] - 2


def test_a_query_reads_the_log_if_index_files_are_deleted_during_every_search(
    eager, store, monkeypatch
):
    fill(store, 200)

    def disturbed(index, wanted, begin, end, files):
        if files:
            raise IndexChangedError
        yield from ()

    monkeypatch.setattr(KeyIndex, "search", disturbed)
    check_queries(store, 200)


def test_an_unrecovered_store_is_checked_with_our_own_checkpoint(eager, open_store, path, clock):
    """A rejected broker advances RocketMQ's checkpoint although its index files are not durable."""
    store = open_store()
    fill(store, 200)
    store.close(clean=False)
    for name in index_of(path).names():
        file = index_of(path).path(name)
        file.write_bytes(file.read_bytes()[:40].ljust(GEOMETRY.file_bytes, b"\0"))
    reboot(path)
    now = clock.now + 10_000
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(now, now, now)))
    Layout(path).own_checkpoint.write_bytes(encode_checkpoint(Checkpoint(0, 0, 0)))
    check_queries(open_store(read_only=True), 200)
