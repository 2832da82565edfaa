"""A store with a missing file is not copied, and the error names it; cleaning is not damage."""

import os
import shutil

import pytest
from golden.java import CLEAN, GOLDEN
from pyrocket import Store
from pyrocket.errors import StoreDamagedError
from pyrocket.tools.verify.verify import verify
from support.stores import bodies, filled, log_files, queue_files, reboot


@pytest.fixture
def target(tmp_path):
    return tmp_path / "copies" / "first"


def truncated(file):
    os.truncate(file, 1000)


LOST = {
    "the second": (1, os.unlink, "STORE_FILE_MISSING"),
    "the last": (-1, os.unlink, "STORE_FILE_MISSING"),
    "the last truncated": (-1, truncated, "STORE_FILE_LENGTH"),
    "the last emptied": (-1, lambda file: os.truncate(file, 0), "STORE_FILE_LENGTH"),
    "the third truncated": (2, truncated, "STORE_FILE_LENGTH"),
    "the last too long": (-1, lambda file: os.truncate(file, 8192), "STORE_FILE_LENGTH"),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_missing_or_short_log_file_is_reported_and_nothing_is_left(lost, path, target):
    """Whether or not the shared state is valid."""
    filled(path, count=200).close()
    which, damage, code = LOST[lost]
    file = log_files(path)[which]
    damage(file)
    for _ in range(2):
        with (
            Store.open(path, read_only=True) as store,
            pytest.raises(StoreDamagedError, match=f"{code}.*{file.name}.*backup") as caught,
        ):
            store.snapshot(target)
        assert "pyrocket verify" in caught.value.remedy
        assert list(target.parent.iterdir()) == []
        reboot(path)


def test_a_damaged_store_with_an_open_writer_is_not_copied(path, target):
    with filled(path, count=200) as store:
        for file in (log_files(path)[1], log_files(path)[-1]):
            content = file.read_bytes()
            file.unlink()
            with pytest.raises(StoreDamagedError, match=file.name):
                store.snapshot(target)
            file.write_bytes(content)
        store.snapshot(target)
    assert verify(target).ok


@pytest.mark.parametrize(
    ("damage", "code"), [(os.unlink, "STORE_FILE_MISSING"), (truncated, "STORE_FILE_LENGTH")]
)
def test_a_missing_or_short_queue_file_is_reported(path, target, damage, code):
    with filled(path, count=95) as store:
        file = queue_files(path)[4]
        damage(file)
        with pytest.raises(StoreDamagedError, match=f"{code}.*{file.name}.*pyrocket repair"):
            store.snapshot(target)
    assert list(target.parent.iterdir()) == []


def test_files_deleted_by_cleaning_while_they_are_listed_are_not_missing(path, target, monkeypatch):
    """A listing may contain the first of two deleted files but not the second."""
    real = os.listdir
    with filled(path, count=200) as writer, Store.open(path, read_only=True) as reader:
        before = log_files(path)

        def listing(folder):
            if str(folder) != str(path / "commitlog"):
                return real(folder)
            monkeypatch.setattr(os, "listdir", real)
            writer.clean(total_bytes=4096 * (len(before) - 2))
            return [before[0].name, *real(folder)]

        monkeypatch.setattr(os, "listdir", listing)
        reader.snapshot(target)
        assert log_files(path) == before[2:]
        with Store.open(target, read_only=True) as copy:
            assert bodies(copy) == bodies(writer)
    assert verify(target).ok


def test_the_last_file_of_a_broker_that_was_killed_may_be_empty(tmp_path, target):
    java = shutil.copytree(GOLDEN / CLEAN, tmp_path / CLEAN)
    last = log_files(java)[-1]
    size = last.stat().st_size
    empty = last.with_name(f"{int(last.name) + size:020d}")
    empty.touch()
    with Store.open(java, read_only=True) as store:
        with pytest.raises(StoreDamagedError, match=empty.name):
            store.snapshot(target)
        (java / "abort").touch()
        store.snapshot(target)
    with Store.open(target) as copy:
        assert sum(map(len, bodies(copy, "TopicTest").values()))
