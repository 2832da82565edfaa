"""All index files: new files, crashes while appending, and the validity of files."""

import itertools
import os
import shutil

import numpy as np
import pytest
from golden.java import CLEAN, GOLDEN, TXCHECK
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.disk import io
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.index_file import Geometry, IndexHeader, key_hash
from pyrocket.index.keys.key_index import IndexChangedError, KeyIndex
from pyrocket.index.keys.key_items import KeyItems, key_items
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk
from support.dying import DeathError, DyingAt
from support.java_index import JavaIndex
from support.keyed import indexed_end

NOW, FOREVER = 1_700_000_000_000, (0, 2**63 - 1)


def make(folder, slots=7, items=10):
    return KeyIndex(Layout(folder), Geometry(slots, items))


def messages(words_of_each, step=100, time=1_000_000):
    """Return (log offset, store time, keys) of consecutive messages with these keys."""
    return [(4096 + step * at, time + 700 * at, words) for at, words in enumerate(words_of_each)]


def search(index, key, *window):
    """Yield the log offsets of messages that may have the key."""
    for part in index.search(np.array([key_hash("t", key)]), *window):
        yield from part.tolist()


def items_of(some):
    rows = [(key_hash("t", word), offset, time) for offset, time, words in some for word in words]
    columns = np.array(rows, np.int64).reshape(len(rows), 3).T
    return KeyItems(columns[0].astype(np.int32), columns[1], columns[2])


def java(some, slots=7, items=10):
    index = JavaIndex(slots, items)
    for offset, time, words in some:
        if words:
            index.build("t", offset, time, words)
    return index.contents()


def contents(index):
    return [index.path(name).read_bytes() for name in index.names()]


WORDS = st.lists(st.sampled_from(["Aa", "BB", "k", "l", "m", "n", "o"]), max_size=5)


@given(
    words=st.lists(WORDS, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    items=st.sampled_from([2, 3, 10, 50]),
)
def test_several_files_have_the_bytes_of_rocketmq(tmp_path_factory, words, cuts, items):
    some = messages(words)
    index = make(tmp_path_factory.mktemp("index"), items=items)
    for first, last in itertools.pairwise([0, *sorted(min(cut, len(some)) for cut in cuts), None]):
        index.append(items_of(some[first:last]), NOW)
    assert contents(index) == java(some, items=items)
    for word in ("Aa", "k", "o"):
        wanted = {offset for offset, _, words in some if {word} & alike(words)}
        found = list(search(index, word, *FOREVER))
        assert set(found) == wanted
        assert found == sorted(found, reverse=True)


def alike(words):
    return set(words) | ({"Aa", "BB"} if {"Aa", "BB"} & set(words) else set())


@pytest.mark.parametrize(("name", "log_bytes"), [(CLEAN, 4096), (TXCHECK, 65536)])
def test_an_index_built_by_rocketmq_is_rebuilt_with_the_same_bytes(tmp_path, name, log_bytes):
    """Delayed and half messages are indexed under the topics in which they are stored."""
    run = FileQueue(GOLDEN / name / "commitlog", log_bytes, tmp_path, writable=False)
    index = make(tmp_path, 100, 400)
    for records in walk(CommitLog(run), 0, WHOLE_LOG):
        index.append(key_items(records), NOW)
    run.close()
    (theirs,) = (GOLDEN / name / "index").iterdir()
    assert contents(index) == [theirs.read_bytes()]


BEFORE = [["a", "b"], ["c", "a"], ["a"]]
BATCH = [["a", "x", "y"], ["Aa", "BB"], [], ["a", "b", "c", "d", "e", "f", "g"], ["a"], ["z"]]


@pytest.mark.parametrize("half", [False, True], ids=["between", "torn"])
@pytest.mark.parametrize("items", [4, 7, 100])
def test_after_a_crash_at_any_step_the_next_writer_repeats_the_batch(
    tmp_path, monkeypatch, half, items
):
    """The next writer may see more of the log or use smaller batches; the bytes are the same."""
    some = messages(BEFORE + BATCH)
    known, cut = len(BEFORE), len(BEFORE) + 2
    for step in range(100):
        index = make(tmp_path / str(step), items=items)
        index.append(items_of(some[:known]), NOW)
        died = False
        with monkeypatch.context() as patch:
            DyingAt(patch, step, half)
            try:
                index.append(items_of(some[known:]), NOW)
            except DeathError:
                died = True
        # At this point a reader finds all complete records.
        assert {4096, 4196, 4296} <= set(search(index, "a", *FOREVER))
        start = max(indexed_end(index), some[known][0])
        again = [one for one in some[known:] if one[0] >= start or one[0] == indexed_end(index)]
        index.append(items_of([one for one in again if one in some[:cut]]), NOW)
        index.append(items_of([one for one in again if one not in some[:cut]]), NOW)
        assert contents(index) == java(some, items=items), step
        if not died:
            break
    assert not died
    assert step >= 3


def test_files_created_in_the_same_millisecond_or_after_a_clock_change_stay_in_order(tmp_path):
    some, index = messages([["k"]] * 30), make(tmp_path)
    for at, one in enumerate(some):
        index.append(items_of([one]), NOW - 1000 * at)
    assert len(index.names()) == 4
    ends = [index.header(name).end_offset for name in index.names()]
    assert ends == sorted(ends)
    assert list(search(index, "k", *FOREVER)) == [one[0] for one in some[::-1]]


def test_files_with_names_that_are_not_of_index_files_are_not_changed(tmp_path):
    index = make(tmp_path)
    index.append(items_of(messages(BATCH)), NOW)
    names = index.names()
    (tmp_path / "index" / "20261121014518383.bak").write_bytes(b"x")
    assert index.names() == names
    assert index.keep_only([]) == len(names)
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["20261121014518383.bak"]


def test_files_outside_of_the_time_window_are_not_searched(tmp_path, monkeypatch):
    """One message every 700 ms, nine per file."""
    some, index = messages([["k"]] * 40), make(tmp_path)
    index.append(items_of(some), NOW)
    inside = [one for one in some if 1_009_000 <= one[1] <= 1_013_000]
    found = set(search(index, "k", 1_009_000, 1_013_000))
    assert {one[0] for one in inside} <= found
    assert len(found) <= len(inside) + 4


@pytest.mark.parametrize("replaced", [True, False])
def test_file_deleted_during_a_search_is_reported(tmp_path, replaced):
    some, index = messages([["k"]] * 40), make(tmp_path)
    index.append(items_of(some), NOW)
    found = search(index, "k", *FOREVER)
    assert next(found) == some[-1][0]
    for name in index.names()[:-2]:
        file = index.path(name)
        file.rename(file.with_suffix(".gone"))
        if replaced:
            shutil.copy(file.with_suffix(".gone"), file)
    with pytest.raises(IndexChangedError):
        list(found)


def test_index_files_of_deleted_messages_are_deleted_except_the_last_index_file(tmp_path):
    some, index = messages([["k"]] * 30), make(tmp_path)
    index.append(items_of(some), NOW)
    names = index.names()
    assert index.remove_below(some[8][0]) == 0, "the last message of the first file exists"
    assert index.remove_below(some[9][0]) == 1
    assert index.names() == names[1:]
    assert index.remove_below(2**62) == 2
    assert index.names() == names[-1:]
    assert index.remove_below(2**62) == 0


def test_files_are_valid_up_to_the_first_invalid_file(tmp_path):
    some, index = messages([["k"]] * 30), make(tmp_path)
    index.append(items_of(some), NOW)
    assert [file.name for file in index.valid_prefix(some[-1][0] + 1)] == index.names()
    assert len(index.valid_prefix(some[-1][0])) == 3, "the log ends before its last message"
    assert index.valid_prefix(some[8][0]) == []
    second = index.path(index.names()[1])
    whole = second.read_bytes()
    for content in (whole[:-1], b"", b"\xff" * len(whole), whole + b"\0"):
        second.write_bytes(content)
        assert len(make(tmp_path).valid_prefix(WHOLE_LOG)) == 1
        with pytest.raises(StoreDamagedError, match=second.name):
            make(tmp_path).valid_prefix(WHOLE_LOG, strict=True)
    second.write_bytes(IndexHeader(end_offset=1, count=9).encode().ljust(len(whole), b"\0"))
    assert len(make(tmp_path).valid_prefix(WHOLE_LOG, strict=True)) == 1, (
        "the log ends before the first file does"
    )


def test_full_files_that_end_by_the_checkpoint_are_durable(tmp_path):
    some, index = messages([["k"]] * 30), make(tmp_path)
    index.append(items_of(some), NOW)
    ends = [index.header(name).end_timestamp for name in index.names()]
    assert ends == [some[at][1] for at in (8, 17, 26, 29)]
    assert index.full_until() == ends[2]
    assert [index.count_durable(time) for time in (0, ends[0] - 1, ends[0], ends[1])] == [
        0,
        0,
        1,
        2,
    ]
    assert index.count_durable(ends[2] - 1) == 2
    assert index.count_durable(ends[3]) == index.count_durable(2**62) == 3, (
        "the last file is not full"
    )


def test_only_the_first_of_several_files_with_the_checkpoints_end_time_is_durable(tmp_path):
    """The other files may have been created after the checkpoint."""
    some, index = [(4096 + at, 5000, ["k"]) for at in range(30)], make(tmp_path)
    index.append(items_of(some), NOW)
    assert len(index.names()) == 4
    assert index.count_durable(5000) == 1
    assert index.count_durable(4999) == 0


def test_all_files_are_flushed_and_a_failure_is_raised(tmp_path, monkeypatch):
    index, synced = make(tmp_path), []
    index.append(items_of(messages([["k"]] * 30)), NOW)
    monkeypatch.setattr(io, "sync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    index.sync()
    assert synced == [index.path(name).stat().st_ino for name in index.names()]

    def fail(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(io, "sync", fail)
    with pytest.raises(io.SyncError):
        index.sync()
