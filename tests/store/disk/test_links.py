"""Symbolic links in a store are rejected, and files outside of the store are never changed."""

import inspect
import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest
from pyrocket import Message, Store
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.full_store import (
    copied,
    descriptors,
    error_of,
    make_full,
    names_of,
    read,
    use,
    with_timers,
)
from support.shares import share
from support.sinks import publish
from support.stores import SMALL, batch, bodies, filled, numbered, reboot, snapshot

ALLOWED = ("commitlog", "consumequeue", "index")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    path = tmp_path_factory.mktemp("links") / "full"
    make_full(path)
    return path


def plant(path, name, canary):
    """Move a file or folder out of the store and replace it with a link."""
    canary.mkdir()
    shutil.move(path / name, canary / "kept")
    (path / name).symlink_to(canary / "kept")
    if (canary / "kept").is_dir():
        (canary / "kept" / "precious").write_text("precious")


def linked_names(path):
    return [one.file for one in verify(path).findings if one.code == "STORE_LINKED"]


@pytest.mark.parametrize("part", share(range(3), 1))
def test_a_link_is_rejected_and_its_target_is_not_changed(full, tmp_path, part):
    for number, name in enumerate(sorted({*names_of(full)} - {*ALLOWED})[part::3]):
        path, canary = tmp_path / f"store-{number}", tmp_path / f"canary-{number}"
        shutil.copytree(full, path)
        plant(path, name, canary)
        before = snapshot(canary)
        assert linked_names(path) == [name]
        error_of(copied, path, tmp_path / f"copy-{number}")
        error_of(read, path)
        for operation in (use, use, repair):
            error = error_of(operation, path)
            if name.split("/")[0] not in ALLOWED:
                assert error.code == "STORE_LINKED", (name, operation)
                assert str(path / name) in error.message, (name, operation)
        assert snapshot(canary) == before, name


@pytest.mark.parametrize("name", ["pyrocket", "pyrocket/tmp", "pyrocket/state", "abort", "lock"])
def test_a_broken_link_is_rejected_with_an_error_that_names_it(path, name):
    filled(path).close()
    if (path / name).is_dir():
        shutil.rmtree(path / name)
    else:
        (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(path.parent / "made")
    for operation in (use, repair):
        assert error_of(operation, path).code == "STORE_LINKED"
    assert not (path.parent / "made").exists()
    assert (path / name).is_symlink()


@pytest.mark.parametrize(
    "name", ["pyrocket", "pyrocket/tmp", "pyrocket/timers", "pyrocket/staging", "config"]
)
def test_a_link_created_while_a_store_is_open_is_not_followed(path, tmp_path, clock, name):
    canary = tmp_path / "canary"
    store = filled(path, clock=clock)
    with_timers(store, clock)
    publish(store, 0, [b"sunk"])
    # The store has open files in the folder and may write to them.
    shutil.copytree(path / name, path / "copy")
    shutil.rmtree(path / name)
    canary.mkdir()
    shutil.move(path / "copy", canary / "kept")
    (path / name).symlink_to(canary / "kept")
    before = snapshot(canary)
    operations = {
        "append": lambda: store.append_batch(batch(numbered(60, 100), 0), topic="t"),
        "timers": lambda: with_timers(store, clock),
        "stage": lambda: publish(store, 1, [b"sunk"]),
        "commit": lambda: store.groups.commit("g", "t", {0: 3}),
        "topic": lambda: store.topics.create("u"),
        "clean": lambda: store.clean(total_bytes=8192),
        "flush": store.flush,
        "close": store.close,
    }
    errors = [error_of(operation) for operation in operations.values()]
    assert snapshot(canary) == before
    codes = {error.code: error.message for error in errors if error is not None}
    if name == "pyrocket":
        assert "STORE_REPLACED" in codes
    else:
        assert str(path / name) in codes["STORE_LINKED"]


def test_folders_that_rocketmq_allows_on_another_disk_may_be_links(path, tmp_path):
    filled(path).close()
    for name in ALLOWED:
        shutil.move(path / name, tmp_path / f"other-{name}")
        (path / name).symlink_to(tmp_path / f"other-{name}")
    with Store.open(path, config=SMALL) as store:
        store.append_batch(batch(numbered(60, first=40), 0), topic="t")
        assert bodies(store) == {0: numbered(100)}
        store.clean(total_bytes=8192)
        store.snapshot(tmp_path / "copy")
        left = bodies(store)
    reboot(path)
    (path / "abort").touch()
    assert verify(path).ok
    assert repair(path).after.ok
    with Store.open(tmp_path / "copy") as copy:
        assert bodies(copy) == left
    with Store.open(path) as store:
        assert bodies(store) == left
    assert all((path / name).is_symlink() for name in ALLOWED)


def test_the_path_of_a_store_may_be_a_link(path, tmp_path):
    (tmp_path / "real").mkdir()
    path.symlink_to(tmp_path / "real")
    filled(path).close()
    use(path)
    assert verify(path).ok
    assert not linked_names(path)


@as_root
@pytest.mark.parametrize("name", ALLOWED)
@pytest.mark.parametrize("of", ["link", "target"])
def test_an_allowed_link_of_another_user_is_rejected(path, tmp_path, name, of):
    with filled(path) as store:
        store.append(Message(topic="t", body=b"x", keys="k"))
    plant(path, name, tmp_path / "canary")
    if of == "link":
        os.lchown(path / name, 60_003, 60_003)
    else:
        os.chown(tmp_path / "canary/kept", 60_003, 60_003)
    before = snapshot(tmp_path / "canary")
    for operation in (use, repair):
        error = error_of(operation, path)
        assert error.code == "STORE_LINKED"
        assert str(path / name) in error.message
    assert linked_names(path) == [name]
    assert snapshot(tmp_path / "canary") == before


@pytest.fixture
def removed_at_the_end(path):
    """Remove trees that are too deep for pytest."""
    yield
    subprocess.run(["rm", "-rf", path], check=True)


@contextmanager
def at_most(more):
    """Limit the stack and the open files to this number more than now."""
    frames, files = sys.getrecursionlimit(), resource.getrlimit(resource.RLIMIT_NOFILE)
    sys.setrecursionlimit(len(inspect.stack(0)) + more)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(descriptors()) + more, files[1]))
    try:
        yield
    finally:
        sys.setrecursionlimit(frames)
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


def test_a_deep_tree_in_the_scratch_folder_is_removed(path, removed_at_the_end):
    """Neither the stack nor the number of open files limits the depth."""
    filled(path).close()
    scratch = os.open(path / "pyrocket/tmp", os.O_RDONLY)
    at = scratch
    for _ in range(300):
        os.mkdir("deeper", dir_fd=at)
        below = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    reboot(path)
    (path / "abort").touch()
    with at_most(200):
        filled(path, count=1).close()
    assert not os.listdir(path / "pyrocket/tmp")
