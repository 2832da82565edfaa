"""After a crash, a loss or damage the invalid part of the key index is rebuilt."""

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import Checkpoint, encode_checkpoint
from support.keyed import OFF, check_queries, checkpointed, contents, crash, fill, index_of, java
from support.stores import overwrite, reboot


def test_after_a_crash_full_files_before_the_checkpoint_are_kept_and_the_rest_is_rebuilt(
    eager, open_store, path, clock
):
    store = open_store()
    fill(store)
    clock.now += 5000
    fill(store, 20, 100)
    store.close()
    kept = [name for name in index_of(path).names() if index_of(path).header(name).count == 80]
    clock.now += 5000
    store = open_store()
    fill(store, 100, 120)
    names = index_of(path).names()
    assert len(names) > len(kept) + 2
    crash(store, path)
    for name in names[len(kept) :]:
        # The part of the file that has reached the disk.
        data = index_of(path).path(name).read_bytes()
        index_of(path).path(name).write_bytes(data[:40] + bytes(len(data) - 40))
    store = open_store(config=OFF)
    survivors = index_of(path).names()
    # The kept files may be fewer than `kept`: of full files with the same end time, the
    # checkpoint proves only that the first one is durable.
    assert survivors == kept[: len(survivors)]
    assert survivors
    assert checkpointed(path) == index_of(path).full_until()
    check_queries(store, 220)
    store.close()
    store = open_store()
    fill(store, 1, 220)
    assert contents(path) == java(store)
    check_queries(store, 221)


def test_files_that_replace_lost_files_are_not_considered_durable_by_their_times(
    eager, open_store, path
):
    """Their end times are not later than the checkpoint, but they were written after it."""
    store = open_store()
    fill(store)
    store.close()
    assert checkpointed(path) > 0
    for name in index_of(path).names():
        index_of(path).path(name).unlink()
    store = open_store()
    assert checkpointed(path) == 0
    fill(store, 1, 100)
    crash(store, path)
    store = open_store(config=OFF)
    assert contents(path) == []
    check_queries(store, 101)


def test_a_brokers_checkpoint_of_files_that_are_not_durable_is_not_trusted(
    eager, open_store, path, clock
):
    """A broker writes later times to `checkpoint` before our lock stops it; our copy is intact."""
    store = open_store()
    fill(store)
    clock.now += 5000
    crash(store, path)
    claim = Checkpoint(clock.now, clock.now, clock.now)
    (path / "checkpoint").write_bytes(encode_checkpoint(claim))
    Layout(path).own_checkpoint.write_bytes(encode_checkpoint(Checkpoint(0, 0, 0)))
    store = open_store(config=OFF)
    assert contents(path) == []
    assert checkpointed(path) == 0
    check_queries(store, 100)


@pytest.mark.parametrize(("lost", "booted"), [("all", True), ("last", False), ("folder", True)])
def test_lost_files_are_rebuilt(eager, open_store, path, lost, booted):
    store = open_store()
    fill(store)
    store.close()
    index = index_of(path)
    for name in index.names()[0 if lost != "last" else -1 :]:
        index.path(name).unlink()
    if lost == "folder":
        (path / "index").rmdir()
    if booted:
        reboot(path)
    with Store.open(path, read_only=True) as reader:
        check_queries(reader, 100)
    store = open_store()
    check_queries(store, 100)
    fill(store, 1, 100)
    assert contents(path) == java(store)
    check_queries(store, 101)


def test_files_lost_while_the_store_is_open_are_rebuilt(eager, store, path):
    fill(store)
    for name in index_of(path).names():
        index_of(path).path(name).unlink()
    check_queries(store, 100)
    fill(store, 10, 100)
    assert contents(path) == java(store)


@pytest.mark.parametrize(
    ("damage", "booted"),
    [("length", True), ("header", False), ("empty", True), ("offset", False)],
)
def test_the_next_writer_deletes_a_damaged_file_and_all_files_after_it(
    eager, open_store, path, damage, booted
):
    store = open_store()
    fill(store)
    store.close()
    second = index_of(path).path(index_of(path).names()[1])
    data = second.read_bytes()
    second.write_bytes(
        {
            "length": data[:-1],
            "header": b"\xff" * 40 + data[40:],
            "empty": b"",
            "offset": data[:24] + (2**40).to_bytes(8, "big") + data[32:],
        }[damage]
    )
    with Store.open(path, read_only=True) as reader:
        if damage != "offset":
            with pytest.raises(StoreDamagedError, match=second.name) as caught:
                reader.lookup.query("t", "all", max_messages=1000)
            assert caught.value.code == "KEY_INDEX_DAMAGED"
        assert len(reader.read("t", 0, 0, 1000)) == 100
    if booted:
        reboot(path)
    store = open_store(config=OFF)
    assert len(index_of(path).names()) == 1
    check_queries(store, 100)
    store.close()
    store = open_store()
    fill(store, 1, 100)
    assert contents(path) == java(store)


def test_a_last_file_that_does_not_end_at_a_record_is_deleted(eager, open_store, path):
    store = open_store()
    fill(store)
    store.close()
    last = index_of(path).path(index_of(path).names()[-1])
    data = last.read_bytes()
    end = int.from_bytes(data[24:32], "big")
    last.write_bytes(data[:24] + (end + 1).to_bytes(8, "big") + data[32:])
    store = open_store()
    check_queries(store, 100)
    fill(store, 1, 100)
    assert contents(path) == java(store)


def test_a_torn_index_does_not_prevent_a_recovery(eager, open_store, path):
    store = open_store()
    fill(store)
    crash(store, path)
    for name in index_of(path).names():
        overwrite(index_of(path).path(name), b"\xff" * 40, 0)
    with Store.open(path, read_only=True) as reader:
        check_queries(reader, 100)
    check_queries(open_store(), 100)
