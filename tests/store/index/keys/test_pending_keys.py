"""Pending keys of appends: the index has the same bytes as one built from the log."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyrocket import Store
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import Layout
from pyrocket.formats.index_file import Geometry, PendingHeader
from pyrocket.index.keys import index_builder, key_search
from pyrocket.index.keys.index_builder import IndexLimits
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.keys.key_items import PendingKeys, key_items
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk
from support.keyed import OFF, check_queries, contents, crash, fill, index_of, java, limit_index
from support.replicas import pass_files, pass_on, replica_of
from support.shares import TIMES
from support.stores import SMALL, batch, message, numbered, overwrite


def from_log(path, folder):
    """Return the bytes of an index built only from the log."""
    log = CommitLog(FileQueue(path / "commitlog", SMALL.log_file_bytes, folder, writable=False))
    index = KeyIndex(Layout(folder), Geometry(SMALL.index_slots, SMALL.index_items))
    for run in walk(log, log.first_offset(), WHOLE_LOG):
        index.append(key_items(run), 0)
    log.run.close()
    return [index.path(name).read_bytes() for name in index.names()]


def pending_header(path):
    """Return the log range with pending keys, and their number."""
    pending = PendingKeys(Layout(path).pending_keys)
    header = pending.header()
    pending.close()
    return header


KEYS = st.lists(st.sampled_from(["Aa", "BB", "k", "ключ", "polygenelubricants"]), max_size=3)
ROWS = st.lists(
    st.tuples(st.sampled_from("tu"), KEYS, st.integers(0, 900)), min_size=1, max_size=12
)
LIMITS = st.fixed_dictionaries(
    {
        "catch_up_bytes": st.sampled_from([1, 1500, 10**9]),
        "slice_bytes": st.sampled_from([1, 10**9]),
        "put_items": st.sampled_from([7, 10**9]),
        "at_once_bytes": st.sampled_from([1, 10**9]),
        "max_pending": st.sampled_from([0, 9, 40, 10**9]),
    }
)


def send(store, rows, whole):
    """Append one row as a message, several rows as a batch."""
    if len(rows) == 1:
        ((topic, keys, size),) = rows
        store.append(message(b"x" * size, topic, keys=keys))
    else:
        topics = pa.array([topic for topic, _, _ in rows], pa.string())
        keys = pa.array([keys for _, keys, _ in rows], pa.list_(pa.string()))
        sent = batch([b"x" * size for _, _, size in rows], 0, topic=topics, keys=keys)
        store.append_batch(sent, whole=whole)


@settings(max_examples=20 * TIMES)
@given(
    appends=st.lists(st.tuples(st.integers(0, 2), ROWS), max_size=12),
    limits=LIMITS,
    reopen=st.integers(0, 12),
    whole=st.booleans(),
)
def test_pending_keys_are_indexed_as_if_read_from_the_log(
    tmp_path_factory, appends, limits, reopen, whole
):
    """Three writers alternate; one of them saves no pending keys."""
    folder = tmp_path_factory.mktemp("pending")
    path = folder / "store"

    def opened(config):
        store = Store.open(path, create=True, config=config)
        limit_index(store, **limits)
        return store

    stores = [opened(config) for config in (SMALL, SMALL, OFF)]
    for topic in "tu":
        stores[0].topics.create(topic, read_queues=1, write_queues=1)
    for at, (writer, rows) in enumerate(appends):
        if at == reopen:
            stores[0].close(clean=False)
            stores[0] = opened(SMALL)
        send(stores[writer], rows, whole)
    for store in stores[::-1]:
        store.close()
    assert contents(path) == from_log(path, folder)
    assert not Layout(path).pending_keys.exists(), "a closed store has no pending keys"


def test_pending_keys_are_not_read_from_the_log(open_store, path, monkeypatch):
    store, other = open_store(), open_store()

    def walked(*_):
        raise AssertionError("the log was read")

    monkeypatch.setattr(index_builder, "walk", walked)
    monkeypatch.setattr(
        key_search, "walk", lambda log, start, end: iter(()) if start == end else walked()
    )
    for one in (store, other):
        limit_index(one, put_items=100)
    for first in range(0, 100, 20):
        fill(store, 10, first)
        fill(other, 10, first + 10)
        check_queries(store, first + 20)
    assert len(contents(path)) > 1
    expected = java(store)
    store.close()
    other.close()
    assert contents(path) == expected


def test_the_keys_of_a_replica_are_not_read_from_its_log(store, path, tmp_path, monkeypatch):
    copy, read = tmp_path / "replica", []

    def walked(*given):
        """Note how many records a search reads: the last one of the index, which may lack items."""
        found = [*walk(*given)]
        read.append(sum(map(len, found)))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(index_builder, "walk", None)
        patch.setattr(key_search, "walk", walked)
        follower = replica_of(path, copy)
        follower._keys.limits = IndexLimits(put_items=100)
        for first in range(0, 100, 20):
            fill(store, 20, first)
            pass_on(path, follower, step=700)
            with Store.open(copy, read_only=True) as replica:
                check_queries(replica, first + 20)
    assert len(contents(copy)) > 1
    assert max(read) == 1
    pass_files(path, follower)
    follower.close(clean=True)
    assert contents(copy) == from_log(path, tmp_path)


def test_keys_of_an_append_with_too_many_keys_are_read_from_the_log(store, path):
    limit_index(store, max_pending=90)
    fill(store, 10)
    fill(store, 31, 10)
    assert pending_header(path).total == 30
    fill(store, 1, 41)
    header = pending_header(path)
    assert (header.total, header.end) == (3, store.position().dispatched)
    check_queries(store, 42)
    expected = java(store)
    store.close()
    assert contents(path) == expected


def test_a_recovery_deletes_the_pending_keys(open_store, path):
    """The log may have been truncated and may have other messages at the same offsets now."""
    store = open_store()
    fill(store)
    assert pending_header(path).total == 300
    crash(store, path)
    store = open_store()
    assert not Layout(path).pending_keys.exists()
    fill(store, 1, 100)
    assert pending_header(path).total == 3
    check_queries(store, 101)
    expected = java(store)
    store.close()
    assert contents(path) == expected


def test_a_torn_or_invalid_header_is_ignored(store, path):
    fill(store)
    whole = Layout(path).pending_keys.read_bytes()
    assert PendingHeader.decode(whole[:32]) == pending_header(path)
    for at in range(32):
        overwrite(Layout(path).pending_keys, bytes([whole[at] ^ 1]), at)
        assert pending_header(path) == (0, 0, 0)
        check_queries(store, 100)
        overwrite(Layout(path).pending_keys, whole[at : at + 1], at)
    assert PendingHeader.decode(b"") is None
    assert PendingHeader.decode(PendingHeader(5, 4, 1).encode()) is None
    Layout(path).pending_keys.write_bytes(whole[:-1])
    check_queries(store, 100)
    fill(store, 1, 100)
    expected = java(store)
    store.close()
    assert contents(path) == expected


def test_a_reader_whose_pending_keys_are_overwritten_reads_the_log(tmp_path):
    ours, theirs = PendingKeys(tmp_path / "keys", writable=True), PendingKeys(tmp_path / "keys")
    assert theirs.header() == (0, 0, 0)
    ours.add(4096, 5000, bytes(48), keep=True)
    header = theirs.header()
    assert (header, len(theirs.items(header))) == ((4096, 5000, 2), 2)
    ours.add(5000, 6000, bytes(24), keep=True)
    assert len(theirs.items(header)) == 2, "the keys are still pending"
    ours.add(6000, 7000, bytes(72), keep=False)
    assert theirs.items(header) is None
    assert theirs.header() == (6000, 7000, 3)
    ours.close()
    theirs.close()


def test_a_long_log_without_keys_is_searched_once(open_store, path, monkeypatch):
    """Messages without keys create no index file that would show how far the log was searched."""
    store = open_store(config=OFF)
    monkeypatch.setattr("pyrocket.engine.message_encoder.UniqueIds.one", lambda self: "")
    for body in numbered(60, 300):
        store.append(message(body))
    monkeypatch.undo()
    store.close(clean=False)
    store = open_store()
    limit_index(store, slice_bytes=1)
    store.append(message(b"x"))
    assert index_of(path).names() == []
    expected = store.read("t", 0, 60)[0].msg_id
    store.close()
    assert len(index_of(path).names()) == 1
    assert open_store(read_only=True).lookup.by_id("t", expected).body == b"x"
