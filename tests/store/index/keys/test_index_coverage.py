"""Index files are valid if they cover the log from its start without a gap."""

import pytest
from pyrocket import Store
from pyrocket.index.keys import key_index
from pyrocket.index.keys.key_index import IndexCoverage
from pyrocket.tools.verify.verify import verify
from support.inner import inner
from support.keyed import fill, from_ipv6, index_of, keyless
from support.stores import SMALL, filled, log_files, message, overwrite


def span_of(store, path, **looks):
    index = index_of(path)
    return IndexCoverage(inner(store).writer.files.log, index, **looks), index


def counted(store, path, **looks):
    """Return the number of valid files, counted without a cache of checked files."""
    span, index = span_of(store, path, **looks)
    return len(span.contiguous_prefix(list(index.files())))


@pytest.mark.parametrize("lost", [0, 1, 4])
def test_files_after_a_missing_file_are_invalid(eager, store, path, lost):
    fill(store, 200)
    names = index_of(path).names()
    index_of(path).path(names[lost]).unlink()
    assert counted(store, path) == lost


def test_a_file_that_begins_before_the_previous_end_is_invalid(eager, store, path):
    """Files that overlap were not built one after the other."""
    fill(store, 200)
    index = index_of(path)
    first, second, third = index.names()[:3]
    index.path(second).unlink()
    index.path(first).rename(index.path(second))
    index.path(third).rename(index.path(first))
    assert counted(store, path) == 0


def test_keys_of_records_before_the_log_are_not_required(eager, store, path):
    fill(store, 200)
    index = index_of(path)
    headers = [index.header(name) for name in index.names()]
    for file in log_files(path):
        if int(file.name) < headers[2].end_offset - 4096:
            file.unlink()
    assert counted(store, path) == len(headers)
    start = int(log_files(path)[0].name)
    gone = sum(header.end_offset < start for header in headers)
    assert gone
    for name in index.names()[:gone]:
        index.path(name).unlink()
    assert counted(store, path) == len(headers) - gone


def test_a_record_of_which_only_the_first_keys_are_indexed_is_a_gap(eager, store, path):
    """The first keys are in a full file; the file with the other keys is lost."""
    store.append(message(keys=[f"many{n}" for n in range(100)]))
    place = store.read("t", 0, 0)[0].physical_offset
    fill(store, 100)
    index = index_of(path)
    first, second, *_ = index.names()
    header = index.header(second)
    assert index.header(first).end_offset == header.begin_offset == place
    # As if the file began after the record.
    begin = store.read("t", 0, 1)[0].physical_offset
    overwrite(index.path(second), begin.to_bytes(8, "big"), 16)
    assert counted(store, path) == 1


@pytest.mark.parametrize(("count", "look"), [(200, 1), (30, 100), (1, 10**6)])
def test_records_without_keys_are_not_a_gap(eager, store, path, count, look):
    """The records are between two files and before the first file; reads have any size."""
    keyless(store, count)
    fill(store, 79)  # Exactly three files.
    index = index_of(path)
    assert index.is_full(index.header(index.names()[-1]))
    keyless(store, count)
    fill(store, 79)
    assert counted(store, path, first_look=look) == 6
    index.path(index.names()[3]).unlink()
    assert counted(store, path, first_look=look) == 3
    index.path(index.names()[0]).unlink()
    assert counted(store, path, first_look=look) == 0


def test_each_pair_of_consecutive_files_is_checked_once_with_a_short_read(
    eager, store, path, monkeypatch
):
    for first in range(0, 200, 20):
        fill(store, 20, first)
    span, index = span_of(store, path)
    read, real = [], key_index.run_at

    def counting(log, start, end):
        read.append(end - start)
        return real(log, start, end)

    monkeypatch.setattr(key_index, "run_at", counting)
    files = list(index.files())
    assert span.contiguous_prefix(files) == files
    assert len(read) < len(files)
    assert max(read) < 4096
    del read[:]
    fill(store, 20, 200)
    files = list(index.files())
    assert span.contiguous_prefix(files) == files
    assert len(read) <= 1, "files that were checked before are not read again"


def test_keys_may_be_missing_in_an_unreadable_part_of_the_log(eager, store, path):
    fill(store, 200)
    index = index_of(path)
    place = index.header(index.names()[2]).end_offset
    assert index.header(index.names()[3]).begin_offset > place
    overwrite(log_files(path)[place // 4096 - 1], b"\xff" * 8, place % 4096)
    assert counted(store, path) == 3


def test_a_file_deleted_during_the_check_is_not_a_gap(eager, store, path, monkeypatch):
    fill(store, 200)
    index = index_of(path)
    for name in index.names()[:2]:
        index.path(name).unlink()
    begin = index.header(index.names()[0]).begin_offset
    real = key_index.run_at

    def cleaned_under_us(log, start, end):
        for file in log_files(path):
            if int(file.name) < begin - begin % 4096 + 4096:
                file.unlink()
        return real(log, start, end)

    monkeypatch.setattr(key_index, "run_at", cleaned_under_us)
    assert counted(store, path) == len(index.names())


def test_index_files_of_messages_from_ipv6_hosts_are_valid(path):
    """The store time of such a message is at a later position in the record."""
    with Store.open(path, create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        for first in range(1, 201, 10):
            from_ipv6(store, 10, first)
    with Store.open(path) as store:
        assert counted(store, path) == len(index_of(path).names()) == 3
        assert [one.body for one in store.lookup.query("t", "k77")] == [b"77"]
        assert [one.body for one in store.lookup.query("t", "k78")] == [b"78"]
    assert not verify(path).findings


def test_a_writer_closes_even_if_new_files_are_always_invalid(path, monkeypatch, caplog):
    filled(path).close()
    monkeypatch.setattr(IndexCoverage, "_has_right_times", lambda self, file: False)
    with Store.open(path) as store:
        store.append(message(b"one more", keys=["k"]))
    assert "is incomplete" in caplog.text
    assert not (path / "abort").exists()
    with Store.open(path, read_only=True) as store:
        assert [one.body for one in store.lookup.query("t", "k")] == [b"one more"]
