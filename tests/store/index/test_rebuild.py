"""Queues that are missing, short, ahead or corrupt after a crash are rebuilt from the log."""

import shutil

import pytest
from pyrocket import Store
from pyrocket.engine import recovery, writer
from pyrocket.errors import StoreDamagedError
from support.inner import inner
from support.shares import share
from support.stores import (
    SMALL,
    batch,
    bodies,
    filled,
    log_files,
    message,
    next_boot,
    numbered,
    overwrite,
    queue_files,
    reboot,
)

COUNT = 60


@pytest.fixture
def image(path):
    """A store after a power loss, with several log files and the topic `other`."""
    fill(path).close(clean=False)
    reboot(path)
    return path


@pytest.fixture(params=["power loss", "shutdown", "kill"])
def closed(path, request):
    """A store after a power loss, which makes the shared state invalid, or with a valid state."""
    fill(path).close(clean=request.param == "shutdown")
    if request.param == "power loss":
        reboot(path)
    return path


def fill(path):
    store = filled(path, count=COUNT)
    store.topics.create("other", read_queues=2, write_queues=2)
    store.append_batch(batch(numbered(30), [n % 2 for n in range(30)]), topic="other")
    store.append_batch(batch(numbered(COUNT, first=COUNT), 0), topic="t")
    return store


def check(path):
    with Store.open(path, config=SMALL) as store:
        assert bodies(store, "t")[0] == numbered(2 * COUNT)
        rows = numbered(30)
        assert bodies(store, "other") == {0: rows[::2], 1: rows[1::2]}
        assert store.append(message(b"next")).queue_offset == 2 * COUNT
    with Store.open(path, read_only=True) as reader:
        assert reader.read("t", 0, 2 * COUNT)[0].body == b"next"


def test_queue_is_ahead_of_the_log(image):
    last = queue_files(image)[-1]
    entry = last.read_bytes()[180:]
    ahead = last.with_name(f"{int(last.name) + 200:020d}")
    offset = int.from_bytes(entry[:8], "big")
    rows = [(offset + 200 * n).to_bytes(8, "big") + entry[8:] for n in range(1, 11)]
    ahead.write_bytes(b"".join(rows))
    check(image)


LOSSES = {
    "one queue": lambda path: shutil.rmtree(path / "consumequeue" / "t"),
    "all files": lambda path: remove(queue_files(path)),
    "all files but one": lambda path: remove(queue_files(path)[1:]),
    "last file": lambda path: remove(queue_files(path)[11:]),
    "last entries": lambda path: overwrite(queue_files(path)[-1], bytes(200), 0),
    "part of an entry": lambda path: overwrite(queue_files(path)[-1], bytes(141), 59),
    "last entry": lambda path: overwrite(queue_files(path)[-1], bytes(20), 180),
}


def remove(files):
    for file in files:
        file.unlink()


@pytest.mark.parametrize("lose", LOSSES.values(), ids=[*LOSSES])
def test_lost_entries_are_rebuilt(closed, lose):
    lose(closed)
    check(closed)


@pytest.mark.parametrize("garbage", [b"\xff" * 200, b"\x00\x01" * 100])
def test_tail_of_a_queue_is_garbage(image, garbage):
    last = queue_files(image)[-1]
    last.with_name(f"{int(last.name) + 200:020d}").write_bytes(garbage)
    overwrite(last, garbage[:60], 140)
    check(image)


@pytest.mark.parametrize("at", share(range(24, 45), 2))
def test_middle_of_a_queues_tail_is_garbage(image, at):
    """The garbage begins at any byte, so the entry before it may have a wrong size or tags code."""
    file = queue_files(image)[-2]
    good = file.read_bytes()
    overwrite(file, b"\x01" * 40, at)
    check(image)
    assert file.read_bytes() == good


@pytest.mark.parametrize("at", share(range(20), 2))
def test_one_wrong_byte_in_an_entry_is_corrected(image, at):
    file = queue_files(image)[-2]
    good = file.read_bytes()
    overwrite(file, bytes((good[100 + at] ^ 1,)), 100 + at)
    check(image)
    assert file.read_bytes() == good


def test_state_and_checkpoint_are_lost(image):
    for name in ("pyrocket/state", "checkpoint", "pyrocket/mutex", "pyrocket/turnstile"):
        (image / name).unlink(missing_ok=True)
    check(image)


def test_queues_are_rebuilt_although_the_time_of_the_checkpoint_is_in_the_future(image):
    (image / "checkpoint").write_bytes((2**62).to_bytes(8, "big") * 2 + bytes(4080))
    shutil.rmtree(image / "consumequeue" / "t")
    check(image)


def test_rebuilt_queues_have_the_same_bytes(closed):
    before = {file: file.read_bytes() for file in closed.glob("consumequeue/*/*/*")}
    shutil.rmtree(closed / "consumequeue")
    Store.open(closed, config=SMALL).close()
    assert {file: file.read_bytes() for file in closed.glob("consumequeue/*/*/*")} == before
    check(closed)


@pytest.mark.parametrize("closed", ["power loss", "shutdown"], indirect=True)
def test_an_unreadable_log_is_not_mistaken_for_a_short_log(closed):
    """The queues are lost and an old log file is damaged: no message is lost silently."""
    shutil.rmtree(closed / "consumequeue")
    overwrite(log_files(closed)[1], bytes(200), 0)
    if (closed / "abort").exists():
        with Store.open(closed, config=SMALL) as store:
            assert store.history.cut_since(0, "t", 0) == store.max_offset("t", 0) < 40
        return
    with pytest.raises(StoreDamagedError, match="corrupt log"):
        Store.open(closed)


def test_after_cleaning_rebuilt_queues_begin_at_the_start_of_the_log(path):
    filled(path, count=COUNT).close()
    log_files(path)[0].unlink()
    shutil.rmtree(path / "consumequeue")
    reboot(path)
    with Store.open(path, config=SMALL) as store:
        first = store.min_offset("t", 0)
        assert 0 < first < COUNT
        assert bodies(store)[0] == numbered(COUNT - first, first=first)


def test_a_queue_without_entries_of_expired_messages_begins_at_the_start_of_the_log(path):
    """The entries are not needed, but a queue with a hole could not continue."""
    filled(path, count=COUNT).close(clean=False)
    log_files(path)[0].unlink()
    with Store.open(path, read_only=True) as reader:
        first = reader.min_offset("t", 0)
    assert 10 < first < COUNT
    for file in queue_files(path)[1:]:
        file.unlink()
    reboot(path)
    with Store.open(path, config=SMALL) as store:
        assert store.min_offset("t", 0) == first
        assert bodies(store)[0] == numbered(COUNT - first, first=first)


def test_a_queue_that_ends_before_its_recorded_deletion_reassigns_no_offset(path):
    """The deletion was interrupted, and then the last messages were lost in a power loss."""
    store = filled(path, count=12)
    inner(store).reader.topics.save_ends({"t": {0: 12}})
    store.close(clean=False)
    for file in queue_files(path)[1:]:
        file.unlink()
    (file,) = log_files(path)
    half = file.read_bytes()[:1500]
    file.write_bytes(half.ljust(SMALL.log_file_bytes, b"\0"))
    reboot(path)
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == []
        assert store.append(message(b"next")).queue_offset == 12


def test_a_queue_lost_long_after_the_last_checkpoint_is_rebuilt(path, monkeypatch):
    """More was appended since the checkpoint than a writer checks when opening the store."""
    monkeypatch.setattr(recovery, "_LOOKED_THROUGH", 1000)
    store = filled(path, count=COUNT)
    store.flush()
    store.append_batch(batch(numbered(20, first=COUNT), 0), topic="t")
    store.close(clean=False)
    shutil.rmtree(path / "consumequeue")
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == numbered(COUNT + 20)


def test_deleted_and_empty_topics_are_not_lost_queues(path, monkeypatch):
    store = filled(path, count=COUNT)
    store.topics.create("empty")
    store.close()
    with Store.open(path, config=SMALL) as store:
        store.topics.delete("t")
    monkeypatch.setattr(writer, "recover_alone", None)
    for boot in (bool, next_boot, bool):
        boot(path)
        with Store.open(path, config=SMALL) as store:
            store.topics.create("t", read_queues=1, write_queues=1)
    with Store.open(path, config=SMALL) as store:
        assert store.append(message(b"next")).queue_offset == COUNT
    Store.open(path, config=SMALL).close()
