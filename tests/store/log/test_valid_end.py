"""Recovery after a machine crash finds the end of the log and truncates the rest."""

import shutil

import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.errors import StoreDamagedError
from support.shares import FEW_STEPS
from support.stores import (
    SMALL,
    batch,
    bodies,
    filled,
    log_files,
    message,
    numbered,
    overwrite,
    reboot,
    words,
)


def crashed(path, **options):
    """Fill a store with the messages `numbered(count)` and simulate a crash of the machine."""
    store = filled(path, **options)
    (last,) = store.read("t", 0, store.max_offset("t", 0) - 1)
    store.close(clean=False)
    reboot(path)
    return last


def file_of(path, offset):
    (file,) = (one for one in log_files(path) if int(one.name) == offset - offset % 4096)
    return file, offset % 4096


@pytest.mark.crash
@pytest.mark.parametrize("every", FEW_STEPS)
def test_torn_tail_is_truncated_at_every_byte_of_the_last_record(path, open_store, every):
    last = crashed(path, count=21, body_bytes=20)
    file, at = file_of(path, last.physical_offset)
    whole = file.read_bytes()
    for kept in range(0, last.store_size, every):
        file.write_bytes(whole[: at + kept].ljust(4096, b"\0"))
        store = open_store()
        assert bodies(store)[0] == numbered(20, 20), kept
        assert not file.read_bytes()[at:].strip(b"\0")
        store.close(clean=False)
        reboot(path)
        overwrite(file, whole[at:], at)
    assert bodies(open_store())[0] == numbered(21, 20)


@pytest.mark.parametrize(
    ("at", "name"),
    [(0, "size"), (28, "offset"), (84, "body"), (95, "crc"), (129, "t")],
)
def test_the_log_ends_before_the_first_corrupt_byte(path, open_store, at, name):
    last = crashed(path, count=30)
    file, start = file_of(path, last.physical_offset)
    byte = file.read_bytes()[start + at]
    overwrite(file, bytes((byte ^ 0x10,)), start + at)
    store = open_store()
    expected = 29 if name != "t" else len(bodies(store)[0])
    assert bodies(store)[0] == numbered(expected)
    assert store.append(message(b"next")).queue_offset == expected


def test_epochs_count_unclean_shutdowns_and_keep_the_lowest_truncation(path, open_store):
    for count in (10, 20, 30):
        store = open_store()
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(10), 0), topic="t")
        assert len(bodies(store)[0]) == count
        store.close(clean=False)
        reboot(path)
    store = open_store()
    assert store.history.epoch == 3
    assert [store.history.cut_since(epoch, "t", 0) for epoch in range(4)] == [10, 20, 30, None]
    assert store.history.cut_since(0, "t", 7) is None
    assert store.history.cut_since(0, "other", 0) is None


def test_a_stray_next_file_of_zeros_is_deleted(path, open_store):
    crashed(path, count=30)
    stray = path / "commitlog" / f"{int(log_files(path)[-1].name) + 4096:020d}"
    stray.write_bytes(bytes(4096))
    store = open_store()
    assert not stray.exists()
    store.append_batch(batch(numbered(60, first=30), 0), topic="t")
    assert bodies(store)[0] == numbered(90)


def test_only_records_after_the_checkpoint_are_read(path, open_store, clock):
    """A clean shutdown moves the checkpoint: recovery does not check the files before it."""
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    store.append_batch(batch(numbered(60), 0), topic="t")
    clock.now += 10_000
    store.append_batch(batch(numbered(60, first=60), 0), topic="t")
    store.close()
    again = open_store()
    clock.now += 10_000
    again.append_batch(batch(numbered(60, first=120), 0), topic="t")
    again.close(clean=False)
    overwrite(log_files(path)[0], b"!", 150)
    reboot(path)
    assert len(bodies_unverified(open_store())) == 180


def bodies_unverified(store):
    parts = store.scan("t", 0, store.min_offset("t", 0), store.max_offset("t", 0))
    return [body for part in parts for body in part.column("body").to_pylist()]


def test_damage_in_the_middle_after_a_clean_shutdown_is_never_truncated(path):
    filled(path, count=150).close()
    reboot(path)
    files = log_files(path)
    overwrite(files[-3], b"!", 150)
    before = [file.read_bytes() for file in files]
    with pytest.raises(StoreDamagedError, match=files[-3].name) as caught:
        Store.open(path)
    assert caught.value.code == "LOG_DAMAGED"
    assert [file.read_bytes() for file in log_files(path)] == before


def test_a_log_truncated_at_the_start_of_a_file_ends_in_the_previous_file(path, clock, open_store):
    """A blank record fills the rest of the file, and no record follows it."""
    with open_store() as store:
        for body in numbered(150):
            clock.now += 1000
            store.append(message(body, queue_id=0))
    reboot(path)
    (path / "abort").touch()
    overwrite(log_files(path)[-1], b"!" * 4096, 0)
    store = open_store()
    left = bodies(store)[0]
    assert 120 < len(left) < 150
    assert left == numbered(len(left))
    assert words(path)[PUBLISHED] % SMALL.log_file_bytes
    assert store.append(message(b"next", queue_id=0)).queue_offset == len(left)


def test_a_clean_shutdown_does_not_start_a_new_epoch(path, open_store):
    filled(path).close()
    reboot(path)
    store = open_store()
    assert store.history.epoch == 0
    assert bodies(store)[0] == numbered(40)


def test_a_missing_log_file_is_always_reported(path):
    crashed(path, count=150)
    files = log_files(path)
    files[2].unlink()
    with pytest.raises(StoreDamagedError) as caught:
        Store.open(path)
    assert caught.value.code == "STORE_FILE_MISSING"
    assert log_files(path) == files[:2] + files[3:]


@pytest.mark.parametrize("length", [4095, 8192])
def test_a_log_file_of_wrong_length_is_reported(path, length):
    crashed(path, count=150)
    last = log_files(path)[-1]
    with last.open("r+b") as file:
        file.truncate(length)
    with pytest.raises(StoreDamagedError, match=last.name) as caught:
        Store.open(path)
    assert caught.value.code == "STORE_FILE_LENGTH"


def test_foreign_file_in_the_log_stops_recovery(path):
    crashed(path)
    (path / "commitlog" / "backup.tar").write_bytes(b"")
    with pytest.raises(StoreDamagedError, match=r"backup\.tar"):
        Store.open(path)


@pytest.mark.parametrize("clean", [True, False])
def test_copied_directory_opens_and_recovers(tmp_path, clean):
    original = filled(tmp_path / "one")
    if clean:
        original.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with Store.open(tmp_path / "two", config=SMALL) as copy:
        assert bodies(copy)[0] == numbered(40)
        assert copy.history.epoch == (0 if clean else 1)
        copy.append(message(b"in the copy"))
        assert bodies(copy)[0] == [*numbered(40), b"in the copy"]
    if not clean:
        original.append(message(b"in the original"))
        assert bodies(original)[0] == [*numbered(40), b"in the original"]
        original.close()


def test_a_restarted_recovery_has_the_same_result(path, open_store, monkeypatch):
    """A recovery that is killed at any of its writes is repeated."""
    last = crashed(path, count=30)
    file, at = file_of(path, last.physical_offset)
    image = path.with_name("image")
    overwrite(file, b"\xff", at + 100)
    shutil.copytree(path, image)
    for failing in range(100):
        shutil.rmtree(path)
        shutil.copytree(image, path)
        left = [failing]
        with monkeypatch.context() as patch:
            for name in ("write_at", "rename", "unlink", "sync_directory"):
                patch.setattr(io, name, _dying(getattr(io, name), left))
            try:
                open_store().close(clean=False)
            except ZeroDivisionError:
                pass
            else:
                return
        store = open_store()
        assert bodies(store)[0] == numbered(29)
        assert store.history.epoch >= 1
        assert store.append(message()).queue_offset == 29
        store.close()
    raise AssertionError("recovery never completed")


def _dying(real, left):
    def operation(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise ZeroDivisionError
        return real(*arguments)

    return operation
