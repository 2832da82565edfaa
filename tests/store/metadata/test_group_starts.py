"""`pyrocket/group_starts.json`: where groups start in topics."""

import os

import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError, StoreUnavailableError
from pyrocket.metadata import group_starts
from pyrocket.metadata.group_starts import GroupStartFile
from pyrocket.store import consumption_of
from pyrocket.tools.verify.verify import verify
from pyrocket.values.consuming import GroupStart
from support.stores import SMALL, message

FIRST, LATER = GroupStart(0, 0), GroupStart(time_ms=5)


@pytest.fixture
def file(path):
    Store.open(path, create=True).close()
    return GroupStartFile(Layout(path))


def test_starts_are_stored_by_group_and_topic_and_never_changed(path, file):
    file.add("g", {"a": FIRST, "b": LATER})
    file.add("g", {"a": LATER, "c": GroupStart(7, 8)})
    file.add("h", {"a": LATER})
    expected = {"g": {"a": FIRST, "b": LATER, "c": GroupStart(7, 8)}, "h": {"a": LATER}}
    assert file.all() == expected == GroupStartFile(Layout(path)).all()


def test_nothing_is_written_or_read_again_if_nothing_is_new(file, monkeypatch):
    file.add("g", {"a": FIRST})
    file.all()
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("read"))
    monkeypatch.setattr(io, "write_at", lambda *_: pytest.fail("written"))
    file.add("g", {"a": LATER})
    file.add("g", {})
    file.drop("h")
    assert file.all() == {"g": {"a": FIRST}}


def test_starts_that_another_process_stores_are_seen(path, file):
    assert file.all() == {}
    GroupStartFile(Layout(path)).add("g", {"a": FIRST})
    file.add("g", {"a": LATER, "b": LATER})
    assert file.all() == {"g": {"a": FIRST, "b": LATER}}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"starts": {"g": {"a": {"log_offset": "1"}}}}',
        b'{"starts": {"g": {"a": {"log_offset": 1e400}}}}',
        b'{"starts": {"g": {"a": {"queue": 1}}}}',
        b'{"crc32": 1, "content": {"starts": {}}}',
    ],
)
def test_a_corrupt_file_is_refused_by_name_and_kept(path, file, content):
    place = path / "pyrocket" / "group_starts.json"
    place.write_bytes(content)
    with pytest.raises(StoreDamagedError, match=r"group_starts\.json") as caught:
        file.all()
    assert caught.value.remedy
    with Store.open(path) as store:
        starts = consumption_of(store).starts
        for use in (lambda: starts.add("g", {"a": FIRST}), lambda: starts.of("g")):
            with pytest.raises(StoreDamagedError, match=r"group_starts\.json"):
                use()
    assert place.read_bytes() == content
    assert [one.file for one in verify(path).findings] == ["pyrocket/group_starts.json"]


def test_a_snapshot_contains_the_starts(path, tmp_path):
    with Store.open(path, create=True) as store:
        store.topics.create("t")
        store.append(message())
        consumption_of(store).starts.add("g", {"t": GroupStart()})
        kept = consumption_of(store).starts.of("g")
        store.snapshot(tmp_path / "copy")
    with Store.open(tmp_path / "copy") as copy:
        assert consumption_of(copy).starts.of("g") == kept
        assert kept["t"].log_offset > 0


def test_starts_after_the_end_of_a_truncated_log_are_lowered(file):
    by_time = GroupStart(time_ms=5, end_offset=90)
    file.add("g", {"a": GroupStart(100, 8), "b": GroupStart(50, 8), "c": by_time, "d": FIRST})
    file.truncate(60)
    lowered = GroupStart(time_ms=5, end_offset=60)
    expected = {"a": GroupStart(60, 8), "b": GroupStart(50, 8), "c": lowered, "d": FIRST}
    assert file.all() == {"g": expected}


def test_messages_stored_after_a_recovery_that_truncated_the_log_are_not_skipped(path):
    with Store.open(path, create=True, config=SMALL) as store:
        store.append(message(b"kept"))
    log = next((path / "commitlog").iterdir())
    before = log.read_bytes()
    with Store.open(path) as store:
        store.append(message(b"lost"))
        consumption_of(store).starts.add("g", {"t": GroupStart()})
    log.write_bytes(before)  # As if the disk had lost its last pages.
    for name in ("state", "ends.json"):
        (path / "pyrocket" / name).unlink(missing_ok=True)
    (path / "abort").touch()
    with Store.open(path) as store:
        starts = consumption_of(store).starts
        assert starts.of("g")["t"].log_offset == store.position().published
        store.append(message(b"new"))
        assert starts.first_offset("t", 0, starts.of("g")["t"]) == store.max_offset("t", 0) - 1


def test_a_client_cannot_fill_the_file_with_topics(file, monkeypatch):
    monkeypatch.setattr(group_starts, "MAX_OF_GROUP", 3)
    monkeypatch.setattr(group_starts, "MAX_STARTS", 5)
    file.add("g", {"a": FIRST, "b": FIRST, "c": FIRST})
    with pytest.raises(StoreUnavailableError, match="starts of the group 'g'") as caught:
        file.add("g", {"d": FIRST})
    assert caught.value.code == "GROUP_STARTS_FULL"
    file.add("h", {"a": FIRST, "b": FIRST})
    file.add("h", {"a": LATER})
    with pytest.raises(StoreUnavailableError):
        file.add("i", {"a": FIRST})
    file.drop("g")
    file.add("i", {"a": FIRST})
    assert {group: len(starts) for group, starts in file.all().items()} == {"h": 2, "i": 1}
