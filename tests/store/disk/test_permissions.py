"""Stores of several users: modes inherited from a shared folder, and errors for other users."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from pyrocket import Message, Store, StoreConfig
from pyrocket.disk import io
from pyrocket.disk.os_errors import naming_obstacles, permission_denied
from pyrocket.errors import OptionError, StorePermissionError, StoreUnavailableError
from support.forked import Forked, run_code
from support.stores import batch, bodies, filled, numbered

ANN, BEN, GROUP, STRANGER = 60_001, 60_002, 60_010, 60_003

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")

IMPORTS = """
import encodings.idna, os, sys, tempfile, traceback
from pathlib import Path
import pyrocket.store
from pyrocket import Store
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.sinks import numbered as batch_of_query, publish, stage
from support.stores import SMALL, batch, numbered, reboot
path = Path(sys.argv[1])
os.chdir("/")
"""

WRITE = """
first = int(sys.argv[2])
with Store.open(path, create=True, config=SMALL) as store:
    store.topics.create("t", read_queues=1, write_queues=1)
    store.append_batch(batch(numbered(40, first=first), 0), topic="t")
    store.groups.commit("g", "t", {0: store.max_offset("t", 0)})
    store.clean(total_bytes=40_000)
    publish(store, first, numbered(10, first=first))
"""

READ = """
with Store.open(path, read_only=True) as store:
    offsets = store.offsets("t")[0]
    print(sum(len(part) for part in store.scan("t", 0, offsets.minimum, offsets.maximum)))
"""


@pytest.fixture
def place():
    """A folder that other users can access; pytest's folders are private."""
    folder = Path(tempfile.mkdtemp(prefix="pyrocket-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def run_as(user, script, *arguments, groups=(), umask=0o022):
    """Run a script as a user; return (exit code, output).

    The script changes the user after its imports, because others may not access the interpreter.
    """
    become = (
        f"os.umask({umask}); os.setgroups({list(groups)}); os.setgid({user}); os.setuid({user})"
    )
    done = Forked(run_code, f"{IMPORTS}\n{become}\n{script}", *map(str, arguments))
    output = "".join(done.communicate(timeout=60))
    return done.returncode, output


def test_an_option_sets_the_mode_of_the_directory(tmp_path):
    """Only the directory itself gets the mode, and only when it is created."""
    Store.open(tmp_path / "s", create=True, config=StoreConfig(dir_mode=0o750)).close()
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o750
    # An existing store is not changed.
    Store.open(tmp_path / "s", create=True, config=StoreConfig(dir_mode=0o2770)).close()
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o750


@pytest.mark.parametrize("mode", [0, 0o077, 0o660, 0o1777, 0o17000, -1])
def test_modes_that_do_not_give_the_owner_full_access_are_rejected(mode):
    with pytest.raises(OptionError, match="dir_mode"):
        StoreConfig(dir_mode=mode)


def modes(path):
    """Return (the modes of all folders, the modes of all files)."""
    found = [(entry.is_dir(), stat.S_IMODE(entry.lstat().st_mode)) for entry in path.rglob("*")]
    return {mode for folder, mode in found if folder}, {
        mode for folder, mode in found if not folder
    }


@pytest.mark.parametrize(
    ("mode", "umask", "folders", "files"),
    [
        (0o2770, 0o022, {0o2775}, {0o664}),
        (0o2770, 0o077, {0o2770}, {0o660}),
        (0o2750, 0o077, {0o2750}, {0o640}),
        (0o770, 0o022, {0o755}, {0o644}),
        (0o700, 0o077, {0o700}, {0o600}),
    ],
)
def test_all_files_in_a_shared_directory_belong_to_its_group(tmp_path, mode, umask, folders, files):
    before = os.umask(umask)
    try:
        config = StoreConfig(
            dir_mode=mode,
            log_file_bytes=4096,
            queue_file_entries=10,
            index_slots=20,
            index_items=80,
        )
        with filled(tmp_path / "s", config=config) as store:
            store.append(Message(topic="t", body=b"x", keys="k"))
            store.append(Message(topic="t", body=b"later", delay_level=1))
            store.groups.commit("g", "t", {0: 3})
    finally:
        os.umask(before)
    assert modes(tmp_path / "s") == (folders, files)


@as_root
def test_two_users_of_a_group_share_a_store(place):
    """Each user creates files, and recovers, cleans and commits with files of the other user."""
    store = place / "store"
    store.mkdir()
    os.chown(store, ANN, GROUP)
    store.chmod(0o2770)
    for turn, user in enumerate([ANN, BEN, ANN]):
        code, output = run_as(user, WRITE, store, 40 * turn, groups=[GROUP], umask=0o077)
        assert code == 0, output
        if turn == 1:
            # As after a power loss: the other user recovers.
            run_as(BEN, "reboot(path)", store, groups=[GROUP])
    assert {entry.stat().st_gid for entry in store.rglob("*")} == {GROUP}
    assert {entry.stat().st_uid for entry in store.rglob("*")} == {ANN, BEN}
    code, output = run_as(STRANGER, READ, store)
    assert code == 1
    assert f"[PERMISSION_DENIED] user {STRANGER} may not use {store}: it belongs to" in output


@as_root
def test_a_reader_of_another_user_needs_only_read_permission(place):
    with filled(place / "store"):
        pass
    assert run_as(STRANGER, READ, place / "store") == (0, "40\n")


@as_root
@pytest.mark.parametrize("action", ["append", "stage"])
def test_a_permission_error_contains_the_owner_of_the_store(place, action):
    with filled(place / "store"):
        pass
    script = {
        "append": "Store.open(path)",
        "stage": (
            "reading = Store.open(path, read_only=True)\n"
            "stage(reading, batch_of_query(1), [b'x'], queue_id=0)"
        ),
    }[action]
    code, output = run_as(STRANGER, script, place / "store")
    assert code == 1
    assert "StorePermissionError: [PERMISSION_DENIED] user 60003 may not use" in output, output
    assert "it belongs to root:root" in output
    assert "chmod -R g+rwX" in output


def deny(monkeypatch, part):
    """Deny opening files with this part in their path, as a kernel would."""

    real = io.open_file

    @naming_obstacles
    def refuse(path, flags):
        if part in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags)

    monkeypatch.setattr(io, "open_file", refuse)


@pytest.mark.parametrize(
    ("part", "code"),
    [("/commitlog/", "PERMISSION_DENIED"), ("/consumequeue/", "QUEUES_NOT_WRITTEN")],
)
def test_a_writer_can_read_files_that_it_may_not_write(tmp_path, monkeypatch, part, code):
    """A write to these files fails until the permission is granted."""
    filled(tmp_path / "s").close()
    real = io.open_file

    @naming_obstacles
    def only_read(path, flags):
        if part in str(path) and flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags)

    with monkeypatch.context() as patch:
        patch.setattr(io, "open_file", only_read)
        store = Store.open(tmp_path / "s")
        assert bodies(store)[0] == numbered(40)
        with pytest.raises(StoreUnavailableError, match=code):
            store.append_batch(batch(numbered(2, first=40), 0), topic="t")
    store.append_batch(batch(numbered(2, first=40), 0), topic="t")
    assert bodies(store)[0][-2:] == numbered(2, first=40)
    store.close()


@pytest.mark.parametrize("part", ["/commitlog/", "/consumequeue/", "/config/topics.json"])
def test_reading_without_permission_is_reported_with_the_file(tmp_path, monkeypatch, part):
    filled(tmp_path / "s").close()
    with Store.open(tmp_path / "s", read_only=True) as store:
        deny(monkeypatch, part)
        with pytest.raises(StorePermissionError, match="may not use") as failure:
            bodies(store)
        assert part.strip("/").split("/")[0] in str(failure.value)


@as_root
@pytest.mark.parametrize(
    ("folder", "command"),
    [
        *(("commitlog", "verify"), ("consumequeue", "repair"), ("config", "verify")),
        *(("index", "repair"), ("pyrocket", "verify")),
    ],
)
def test_a_check_without_permission_is_reported_with_the_file(place, folder, command):
    with filled(place / "store") as store:
        store.append(Message(topic="t", body=b"x", keys="k"))
    (place / "store" / folder).chmod(0o700)
    code, output = run_as(STRANGER, f"{command}(path)", place / "store")
    assert code == 1
    assert f"StorePermissionError: [PERMISSION_DENIED] user {STRANGER} may not use" in output, (
        output
    )
    assert f"{place / 'store'}" in output
    assert "Run as the store's owner" in output


def test_permission_lost_while_writing_is_reported_and_loses_no_message(tmp_path, monkeypatch):
    with filled(tmp_path / "s", count=3) as store:
        with monkeypatch.context() as patch:
            deny(patch, "/pyrocket/tmp/")
            with pytest.raises(StorePermissionError, match=r"\[PERMISSION_DENIED\]"):
                store.append_batch(batch(numbered(40), 0), topic="t")
        store.append_batch(batch(numbered(2, first=3), 0), topic="t")
        assert bodies(store) == {0: numbered(5)}


def test_a_permission_error_is_also_pythons_permission_error():
    error = permission_denied(PermissionError(13, "Permission denied", "/etc/shadow"))
    assert isinstance(error, StoreUnavailableError)
    assert isinstance(error, PermissionError)
    assert error.code == "PERMISSION_DENIED"
    assert "/etc/shadow: it belongs to root:" in str(error)


def test_a_permission_error_without_a_file_keeps_its_reason():
    assert "Operation not permitted" in str(
        permission_denied(PermissionError(1, "Operation not permitted"))
    )


def test_a_file_of_another_user_gets_the_current_time_instead_of_the_requested_time(
    tmp_path, monkeypatch
):
    """Only the owner of a file may set it to any other time."""
    file, real = tmp_path / "f", os.utime
    file.touch()
    real(file, (1, 1))

    def owned_by_another(path, times=None, *, ns=None, **options):
        if ns:
            raise PermissionError(1, "Operation not permitted", str(path))
        real(path, **options)

    monkeypatch.setattr(os, "utime", owned_by_another)
    io.set_time(file, 5_000)
    assert file.stat().st_mtime > 1_000_000
