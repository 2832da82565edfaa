"""The remedies in errors solve the problem."""

import errno
import os
import re
import shlex

import pytest
from click.testing import CliRunner
from pyrocket import Message, Store
from pyrocket.disk.os_errors import os_error_remedy
from pyrocket.errors import REBUILD_QUEUES, StoreDamagedError
from pyrocket.tools.cli import main
from support.stores import filled, overwrite, queue_files


def test_the_remedy_for_a_wrong_queue_entry_rebuilds_the_queues(tmp_path):
    root = tmp_path / "store"
    with Store.open(root, create=True) as store:
        for number in range(50):
            store.append(Message(topic="T", body=b"%d" % number, queue_id=number % 2))
    (file,) = (root / "consumequeue/T/0").iterdir()
    changed = file.stat().st_mtime_ns
    with file.open("r+b") as queue:
        queue.seek(20 * 3)
        queue.write((40).to_bytes(8, "big"))
    # Otherwise the next open would detect and repair it.
    os.utime(file, ns=(changed, changed))
    with Store.open(root) as store, pytest.raises(StoreDamagedError) as caught:
        list(store.scan("T", 0, 0, 25, ["body"]))
    assert caught.value.remedy == REBUILD_QUEUES
    command = shlex.split(re.search(r"`pyrocket ([^`]*)`", REBUILD_QUEUES)[1])
    done = CliRunner().invoke(main, [*command, str(root), "--yes"])
    assert done.exit_code == 0, done.output
    with Store.open(root) as store:
        for queue_id in (0, 1):
            bodies = [message.body for message in store.read("T", queue_id, 0, 100)]
            assert bodies == [b"%d" % number for number in range(queue_id, 50, 2)]


@pytest.mark.parametrize("size", [120, 138, 4000])
def test_a_wrong_size_in_an_entry_is_not_reported_as_damage_of_the_log(path, size):
    """Only a repair corrects the entry; the log is intact."""
    with filled(path) as store:
        overwrite(queue_files(path)[0], size.to_bytes(4, "big"), 3 * 20 + 8)
        for read in (lambda: store.read("t", 0, 3, 1), lambda: list(store.scan("t", 0, 3, 5))):
            with pytest.raises(StoreDamagedError) as caught:
                read()
            assert "pyrocket repair" in caught.value.remedy
            if caught.value.remedy != REBUILD_QUEUES:
                assert "pyrocket verify" in caught.value.remedy
    assert CliRunner().invoke(main, ["verify", str(path)]).exit_code == 1
    assert CliRunner().invoke(main, ["repair", str(path), "--yes"]).exit_code == 0
    with Store.open(path) as store:
        assert len(store.read("t", 0, 3, 1)) == 1


def test_a_folder_in_place_of_a_file_is_not_reported_as_a_full_disk(path):
    filled(path).close()
    (path / "lock").unlink()
    (path / "lock").mkdir()
    with pytest.raises(StoreDamagedError, match=r"STORE_FILE_KIND.*lock is a folder") as caught:
        Store.open(path)
    assert "Move it away" in caught.value.remedy
    (path / "lock").rmdir()
    Store.open(path).close()


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (errno.ENOSPC, "Free space, then try again."),
        (errno.EIO, "Repair the disk, then try again."),
        (errno.EROFS, "for writing"),
        (errno.EMFILE, "open files"),
        (errno.ENOENT, "missing"),
        (errno.EISDIR, "in its place"),
        (errno.EBADF, "Free space or repair the disk"),
    ],
)
def test_the_remedy_depends_on_the_error_number(number, what):
    assert what in os_error_remedy(OSError(number, os.strerror(number)), "try again")
    assert "Free space" in os_error_remedy(OSError("without a number"), "try again")
