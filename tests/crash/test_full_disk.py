"""On a full disk, writes fail with a clear error, reads continue, and no acknowledged message is
lost.

Each test has a disk of its own, a small tmpfs; mounting one requires root.
"""

import os
import random
import shutil
import subprocess
from dataclasses import replace

import pytest
from pyrocket import Retention, Store
from pyrocket.errors import StoreUnavailableError
from pyrocket.tools.verify.verify import verify
from support.stores import SMALL, batch, bodies, log_files, message, reboot

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]

DISK_BYTES = 1024 * 1024
NO_LIMITS = Retention(hours=None, clean_ratio=1, force_ratio=1, full_ratio=1)
"""Appends are refused by the disk itself: without it, while two more log files do not fit."""

CONFIG = replace(SMALL, log_file_bytes=64 * 1024, queue_file_entries=1000, retention=NO_LIMITS)


class Disk:
    """A small file system, and a file on it that takes all free space."""

    def __init__(self, folder):
        self.store, self._ballast = folder / "store", folder / "ballast"

    def fill(self, left=0):
        """Fill the disk up to `left` free bytes."""
        usage = os.statvfs(self.store.parent)
        with self._ballast.open("ab") as file:
            file.write(bytes(max(0, usage.f_bavail * usage.f_frsize - left)))

    def free(self):
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "pyrocket-test", folder]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("cannot mount a small tmpfs: it requires root")
    yield Disk(folder)
    subprocess.run(["umount", "-l", folder], check=True)


def opened(disk, **options):
    return Store.open(disk.store, create=True, config=replace(CONFIG, **options))


def attempt(write):
    """Return the result of a call, and its error code if it fails."""
    try:
        return write(), None
    except StoreUnavailableError as error:
        return None, error.code


def refuse(write):
    """Call it on the full disk; return the error code."""
    with pytest.raises(StoreUnavailableError) as caught:
        write()
    assert caught.value.remedy
    return caught.value.code


def fill_with_messages(store, size=400):
    """Append until the disk is full; return the acknowledged messages and the last error."""
    sent = []
    while True:
        body = b"%06d" % len(sent) + b"." * size
        _, code = attempt(lambda body=body: store.append(message(body)))
        if code:
            return sent, body, code
        sent.append(body)


def check_both(disk, store, expected):
    """Check that a writer, a reader, and the next process, also after a reboot, see the same."""
    assert bodies(store)[0] == expected
    with Store.open(disk.store, read_only=True) as reader:
        assert bodies(reader)[0] == expected


@pytest.mark.parametrize("flush", ["sync", "manual"])
def test_appends_until_the_disk_is_full_and_after(disk, flush):
    """The log's files are sparse: the disk becomes full inside a file, or at its start."""
    store = opened(disk, flush=flush)
    store.topics.create("t", read_queues=1, write_queues=1)
    disk.fill(left=200 * 1024)
    sent, last, code = fill_with_messages(store)
    assert len(sent) > 100
    for _ in range(3):
        if code == "QUEUES_NOT_WRITTEN":
            # The message is in the log; the error says that the next append makes it visible.
            sent.append(last)
            break
        assert code == "WRITE_FAILED"
        with Store.open(disk.store, read_only=True) as reader:
            assert bodies(reader)[0] == sent
        code = refuse(lambda: store.append(message(last)))
    disk.free()
    store.append(message(b"after"))
    check_both(disk, store, [*sent, b"after"])
    store.close()
    reboot(disk.store)
    with opened(disk) as again:
        check_both(disk, again, [*sent, b"after"])


def test_a_log_file_that_cannot_be_created(disk):
    """A new log file does not get a single byte."""
    with opened(disk) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        body = random.Random(1).randbytes(10_000)
        for _ in range(6):
            store.append(message(body))
        disk.fill()
        assert refuse(lambda: store.append(message(body))) == "WRITE_FAILED"
        assert refuse(lambda: store.append_batch(batch([body] * 9, 0), topic="t")) == "WRITE_FAILED"
        check_both(disk, store, [body] * 6)
        disk.free()
        store.append(message(body))
        check_both(disk, store, [body] * 7)


def test_a_queue_file_that_cannot_be_created(disk):
    """The message is in the log already: it becomes visible once, as soon as its queue can be
    written.
    """
    with opened(disk) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        store.append(message(b"first"))
        page = os.statvfs(disk.store).f_frsize
        for left in range(4):
            disk.fill(left=left * page)
            code = refuse(lambda: store.append(message(b"x" * 3000, queue_id=1)))
            if code == "QUEUES_NOT_WRITTEN":
                break
            disk.free()
        assert code == "QUEUES_NOT_WRITTEN"
        with Store.open(disk.store, read_only=True) as reader:
            assert bodies(reader) == {0: [b"first"], 1: []}
        disk.free()
        store.append(message(b"next", queue_id=1))
        assert bodies(store) == {0: [b"first"], 1: [b"x" * 3000, b"next"]}


def test_topics_that_cannot_be_saved(disk):
    with opened(disk) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append(message(b"here"))
        disk.fill()
        assert refuse(lambda: store.topics.create("new")) == "WRITE_FAILED"
        assert refuse(lambda: store.topics.update("t", read_queues=3)) == "WRITE_FAILED"
        assert refuse(lambda: store.topics.delete("t")) == "WRITE_FAILED"
        assert list(store.topics.all()) == ["t"]
        assert bodies(store) == {0: [b"here"]}
        disk.free()
        store.topics.create("new")
        store.topics.delete("t")
        assert list(store.topics.all()) == ["new"]


def test_a_new_store_on_a_full_disk(disk):
    """The store may be created partly; it is completed once there is enough space."""
    page = os.statvfs(disk.store.parent).f_frsize
    codes = set()
    for left in range(12):
        disk.fill(left=left * page)
        store, code = attempt(lambda: opened(disk))
        codes.add(code)
        disk.free()
        if store:
            store.close()
    assert codes == {"WRITE_FAILED", None}
    with opened(disk) as store:
        store.append(message(b"here"))
        assert bodies(store)[0] == [b"here"]


@pytest.mark.parametrize("booted", [False, True], ids=["same boot", "after a boot"])
@pytest.mark.parametrize("clean", [False, True], ids=["unclean", "clean"])
def test_an_old_store_is_opened_on_a_full_disk(disk, booted, clean):
    with opened(disk) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(batch([b"%d" % n for n in range(2000)], 0), topic="t")
        store.close(clean=clean)
    expected = [b"%d" % n for n in range(2000)]
    if booted:
        reboot(disk.store)
    disk.fill()
    with Store.open(disk.store, read_only=True) as reader:
        assert bodies(reader)[0] == expected
    store, code = attempt(lambda: opened(disk))
    assert code in (None, "WRITE_FAILED")
    if store:
        assert bodies(store)[0] == expected
        store.close(clean=False)
    disk.free()
    with opened(disk) as store:
        store.append(message(b"after"))
        check_both(disk, store, [*expected, b"after"])


def test_a_clean_shutdown_needs_room(disk):
    """Queues and checkpoint cannot be written: the store remains marked as crashed."""
    store = opened(disk)
    store.topics.create("t", read_queues=1, write_queues=1)
    store.append(message(b"here"))
    disk.fill()
    assert refuse(store.close) == "WRITE_FAILED"
    assert (disk.store / "abort").exists()
    disk.free()
    with opened(disk) as again:
        check_both(disk, again, [b"here"])
    assert not (disk.store / "abort").exists()


def fill_to_a_page(disk, store):
    """Fill the last written page exactly to its end; return the number of records."""
    at = [store.append(message(b"x" * size)).physical_offset for size in (3000, 3000, 3000)]
    rest = -(at[-1] + 2 * (at[2] - at[1])) % 4096
    store.append(message(b"x" * (3000 + rest)))
    disk.fill()
    return 4


def fill_the_rest(disk, store):
    """Append until a write fails; return the number of messages in the log."""
    disk.fill(left=200 * 1024)
    sent, _, code = fill_with_messages(store, size=3000)
    return len(sent) + (code == "QUEUES_NOT_WRITTEN")


@pytest.mark.parametrize("file_kib", [64, 4096])
@pytest.mark.parametrize("fill", [fill_to_a_page, fill_the_rest])
def test_holes_are_not_searched_for_messages(disk, fill, file_kib):
    """Touching a hole through a mapping would need a page that the disk does not have: SIGBUS."""
    store = opened(disk, log_file_bytes=file_kib * 1024)
    store.topics.create("t", read_queues=1, write_queues=1)
    there = fill(disk, store)
    attempt(store.close)
    for _ in range(2):
        disk.fill()
        assert verify(disk.store).messages == there
        reboot(disk.store)
        again, _ = attempt(lambda: opened(disk))
        if again:
            attempt(again.close)
    disk.free()
    with opened(disk) as again:
        assert len(bodies(again)[0]) == there


def test_a_body_with_holes_is_complete(disk):
    """Pages of zeros are holes in a copy, and read as zeros."""
    with opened(disk) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        sent = [bytes(size) for size in (20_000, 3, 40_000, 9000)]
        for body in sent:
            store.append(message(body, keys=["zeros"]))
    made = disk.store.with_name("made")
    disk.store.rename(made)
    subprocess.run(["cp", "-a", "--sparse=always", made, disk.store], check=True)
    assert sum(file.stat().st_blocks for file in log_files(disk.store)) * 512 < 40_000
    disk.fill()
    assert verify(disk.store).messages == len(sent)
    attempt(lambda: opened(disk))
    disk.free()
    with opened(disk) as again:
        check_both(disk, again, sent)
        assert [found.body for found in again.lookup.query("t", "zeros")] == sent
