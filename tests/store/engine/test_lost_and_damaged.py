"""Queues that lost files while the log has old damage: no other data may be deleted."""

import pytest
from pyrocket import Store
from pyrocket.errors import StoreDamagedError
from support.damage import readable
from support.stores import (
    SMALL,
    filled,
    log_files,
    message,
    next_boot,
    overwrite,
    queue_files,
    reboot,
)

COUNT = 200
MAGIC_AT = 4


@pytest.fixture
def path(tmp_path):
    """A store that was closed cleanly; the first record of its second log file is damaged."""
    path = tmp_path / "store"
    filled(path, count=COUNT).close()
    overwrite(log_files(path)[1], b"xx", MAGIC_AT)
    return path


@pytest.mark.parametrize("boot", [bool, next_boot, reboot], ids=["same", "next", "crash"])
@pytest.mark.parametrize("lost", [0, 7, 12])
def test_readable_messages_stay_readable_and_writers_continue(path, caplog, lost, boot):
    queue_files(path)[lost].unlink()
    before = readable(path)
    assert len(before) > COUNT - 50
    boot(path)
    for more in range(3):
        with Store.open(path, config=SMALL) as store:
            assert store.append(message(b"on")).queue_offset == COUNT + more
    assert readable(path) == before | {COUNT + more: b"on" for more in range(3)}
    assert (
        "queues have missing files that cannot be rebuilt from the log: corrupt log" in caplog.text
    )


def test_offsets_are_not_reassigned_after_the_last_files_were_lost(path):
    for file in queue_files(path)[-9:]:
        file.unlink()
    files = queue_files(path)
    before = readable(path)
    for _ in range(2):
        with pytest.raises(StoreDamagedError, match="there is no record at"):
            Store.open(path, config=SMALL)
    assert queue_files(path) == files
    assert readable(path) == before


def test_invalid_entries_are_kept_if_the_log_lacks_their_messages(path):
    """The invalid entries precede those that a recovery checks, and later entries are valid."""
    last_but_two = queue_files(path)[-3]
    overwrite(last_but_two, b"\xff" * 8, 40)
    before = readable(path)
    reboot(path)
    with pytest.raises(StoreDamagedError, match="there is no record at"):
        Store.open(path, config=SMALL)
    assert readable(path) == before
