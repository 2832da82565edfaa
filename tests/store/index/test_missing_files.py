"""To readers, a file deleted by cleaning has expired, and any other missing file is damage."""

import os

import pytest
from pyrocket import MessageFilter, Store
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.index.queues import scanner as scanning
from pyrocket.tools.verify.verify import verify
from support.inner import inner
from support.stores import filled, log_files, message, numbered, overwrite, queue_files

COUNT = 95


@pytest.fixture
def store(path):
    with filled(path, COUNT) as store:
        yield store


def read_all(store, first=0):
    return store.read("t", 0, first, COUNT)


def scan_all(store, first=0, **options):
    return list(store.scan("t", 0, first, COUNT, ["body"], **options))


def scan_apart(store, first=0):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "is_sparse", lambda offsets, sizes: True)
        return scan_all(store, first)


def by_time(store, first=0):
    return store.offset_by_time("t", 0, 2**62)


WAYS = [read_all, scan_all, scan_apart]


@pytest.mark.parametrize("read", WAYS)
def test_the_error_names_a_missing_log_file(store, path, read):
    gone = log_files(path)[1]
    first = next(
        one.queue_offset for one in read_all(store) if one.physical_offset >= int(gone.name)
    )
    assert store.min_offset("t", 0) < first
    gone.unlink()
    with pytest.raises(
        StoreDamagedError, match=f"STORE_FILE_MISSING.*{gone.name}.*backup"
    ) as caught:
        read(store)
    assert f"offset {first} of queue 0 of 't'" in caught.value.message
    assert "pyrocket verify" in caught.value.remedy
    (missing,) = [each for each in verify(path).findings if each.code == "LOG_FILE_MISSING"]
    assert missing.file == f"commitlog/{gone.name}"
    assert missing.file in missing.fix


def test_a_look_up_by_time_names_the_missing_log_file(path, clock):
    with filled(path, count=0, clock=clock) as store:
        for body in numbered(60):
            clock.now += 1000
            store.append(message(body, queue_id=0))
        gone = log_files(path)[1]
        gone.unlink()
        first = clock.now - 59_000
        with pytest.raises(StoreDamagedError, match=f"STORE_FILE_MISSING.*{gone.name}.*backup"):
            [store.offset_by_time("t", 0, at) for at in range(first, clock.now, 1000)]


@pytest.mark.parametrize("read", WAYS)
def test_a_log_file_deleted_by_a_cleaning_during_a_read_is_not_damage(
    store, path, read, monkeypatch
):
    """The file is deleted after the reader has read the queue and before it reads the log."""
    entries = type(inner(store).reader.files.queues.get("t", 0)).entries

    def cleaned(queue, start, end):
        found = entries(queue, start, end)
        if end - start > 64:
            monkeypatch.undo()
            store.clean(total_bytes=4096)
        return found

    with Store.open(path, read_only=True) as reader:
        reader.offsets("t")
        monkeypatch.setattr("pyrocket.index.queues.consume_queue.ConsumeQueue.entries", cleaned)
        with pytest.raises(OffsetOutOfRangeError, match=r"ha(s|ve) expired"):
            read(reader)
    assert len(log_files(path)) == 1


@pytest.mark.parametrize("read", [*WAYS, by_time])
def test_an_entry_outside_the_log_is_not_a_missing_log_file(store, path, read):
    entry = (2**60).to_bytes(8, "big") + (137).to_bytes(4, "big")
    for at in (20, COUNT // 2):
        overwrite(queue_files(path)[at // 10], entry, at % 10 * 20)
    with pytest.raises(StoreDamagedError, match=r"STORE_DAMAGED.*pyrocket (repair|verify)"):
        read(store, 10)


@pytest.mark.parametrize("read", [*WAYS, by_time])
@pytest.mark.parametrize("length", [None, 100])
def test_the_error_for_a_missing_or_short_queue_file_has_its_name_and_a_remedy(
    store, path, read, length
):
    for file in queue_files(path)[3:6]:
        if length is None:
            file.unlink()
        else:
            os.truncate(file, length)
    code = "STORE_FILE_MISSING" if length is None else "STORE_FILE_LENGTH"
    with pytest.raises(StoreDamagedError, match=rf"{code}.*0000\d00.*pyrocket repair"):
        read(store)


def test_a_queue_whose_first_files_were_deleted_by_cleaning_is_not_damaged(store, path):
    rows = store.scan("t", 0, 0, COUNT, ["body"])
    for file in queue_files(path)[:3]:
        file.unlink()
    with pytest.raises(OffsetOutOfRangeError, match=r"ha(s|ve) expired"):
        list(rows)


def test_messages_before_and_after_a_short_queue_file_are_read(store, path):
    os.truncate(queue_files(path)[3], 110)
    assert sum(part.num_rows for part in store.scan("t", 0, 0, 35)) == 35
    assert sum(part.num_rows for part in store.scan("t", 0, 40, COUNT)) == COUNT - 40
    wanted = MessageFilter.parse(tags="none")
    with pytest.raises(StoreDamagedError, match="STORE_FILE_LENGTH"):
        scan_all(store, where=wanted)
