"""On a full disk, writes fail with a clear error, reads continue, and no acknowledged message is
lost.

Each test has its own disk, a small tmpfs; mounting a tmpfs requires root.
"""

import os
import random
import subprocess
from dataclasses import replace

import pytest
from pyrocket import Retention, Store
from pyrocket.errors import StoreUnavailableError
from pyrocket.tools.verify.verify import verify
from support.disks import mounted
from support.stores import SMALL, batch, bodies, log_files, message, reboot

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]

DISK_BYTES = 1024 * 1024
NO_LIMITS = Retention(hours=None, clean_ratio=1, force_ratio=1, full_ratio=1)
"""With this retention, the disk itself refuses appends. Without it, pyrocket rejects them as long
as there is no room for two more log files.
"""

CONFIG = replace(SMALL, log_file_bytes=64 * 1024, queue_file_entries=1000, retention=NO_LIMITS)


@pytest.fixture
def disk(tmp_path):
    with mounted(tmp_path / "disk", DISK_BYTES) as one:
        yield one


def opened(disk, **options):
    return Store.open(disk.store, create=True, config=replace(CONFIG, **options))


def attempt(write):
    """Return the result of a call, or its error code if it fails."""
    try:
        return write(), None
    except StoreUnavailableError as error:
        return None, error.code


def refuse(write):
    """Make the call on the full disk; return the error code."""
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
    """Check that this writer, a reader, and the next processes, before and after a reboot, read the
    same messages.
    """
    assert bodies(store)[0] == expected
    with Store.open(disk.store, read_only=True) as reader:
        assert bodies(reader)[0] == expected


@pytest.mark.parametrize("flush", ["sync", "manual"])
def test_no_acknowledged_message_is_lost_when_the_disk_becomes_full(disk, flush):
    """Log files are sparse: the disk becomes full in the middle or at the start of a file."""
    store = opened(disk, flush=flush)
    store.topics.create("t", read_queues=1, write_queues=1)
    disk.fill(left=200 * 1024)
    sent, last, code = fill_with_messages(store)
    assert len(sent) > 100
    for _ in range(3):
        if code == "QUEUES_NOT_WRITTEN":
            # The message is in the log; the error states that the next append makes it visible.
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


def test_an_append_fails_and_can_be_repeated_if_a_log_file_cannot_be_created(disk):
    """There is no space for the first byte of a new log file."""
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


def test_a_message_becomes_visible_once_if_its_queue_file_is_created_later(disk):
    """The message is already in the log: it becomes visible as soon as its queue can be written."""
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


def test_a_topic_that_cannot_be_saved_is_not_created(disk):
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


def test_a_store_that_was_created_partly_on_a_full_disk_is_completed_later(disk):
    """The store may have been created partly; it is completed when there is enough space."""
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
def test_an_existing_store_can_be_opened_and_read_on_a_full_disk(disk, booted, clean):
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


def test_a_shutdown_on_a_full_disk_is_not_clean(disk):
    """Queues and checkpoint cannot be written, so `abort` remains."""
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
    """Append records that end exactly at the end of a page; return their number."""
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
def test_holes_of_the_log_are_not_read_through_a_mapping_on_a_full_disk(disk, fill, file_kib):
    """Reading a hole through a mapping would need a page, which a full disk does not have:
    SIGBUS.
    """
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


def test_a_body_of_zeros_is_complete_in_a_copy_with_holes(disk):
    """In a copy, pages of zeros are holes, which are read as zeros."""
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
