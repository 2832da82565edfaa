"""Symbolic links in a store: refused by name, and nothing outside the store is ever changed."""

import os
import shutil

import pytest
from halves import UNKNOWN, Listener, producer
from pyrocket import Message, PyrocketError, Store
from pyrocket.repair.run import repair
from pyrocket.verify import verify
from sinks import numbered as batch_of
from sinks import publish, stage
from stores import SMALL, FakeClock, batch, bodies, filled, numbered, reboot, snapshot

ALLOWED = ("commitlog", "consumequeue", "index")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A store with a file of every kind, not closed cleanly; a copy of it is recovered."""
    path = tmp_path_factory.mktemp("links") / "full"
    clock = FakeClock()
    with filled(path, count=30, clock=clock) as store:
        store.append(Message(topic="t", body=b"key", keys="k"))
    reboot(path)
    (path / "abort").touch()
    with Store.open(path, config=SMALL, clock=clock) as store:
        publish(store, 1, [b"sunk"])
        with_timers(store, clock)
    store = Store.open(path, config=SMALL, clock=clock)
    store.append(Message(topic="t", body=b"later", delay_level=3))
    producer(store, listener=Listener(UNKNOWN)).send(Message(topic="t", body=b"half"))
    store.groups.commit("g", "t", {0: 3})
    store.groups.commit("g", "t", {0: 4})
    publish(store, 2, [b"sunk"])
    stage(store, batch_of(3), [b"staged"])
    store.flush()
    store.close(clean=False)
    (path / "pyrocket/tmp/draft").mkdir()
    (path / "pyrocket/tmp/draft/file").write_text("left over")
    for name in ("timerlog", "config"):
        (path / name).mkdir(exist_ok=True)
    (path / "timerlog" / f"{0:020d}").write_bytes(bytes(4096))
    (path / "timerwheel").write_bytes(bytes(64))
    (path / "config/timercheck").write_bytes(bytes(64))
    return path


def with_timers(store, clock):
    """Have the store keep timers."""
    for after in (10, 7_200_000):
        store.append(Message(topic="t", body=b"at", deliver_at_ms=clock.now + after))
    clock.now += 10_000
    store.advance()


def names_of(path):
    """Every name of a store; of the files of one run the first and the last."""
    names = []
    for entry in sorted(path.rglob("*")):
        among = sorted(each.name for each in entry.parent.iterdir())
        if not entry.name.isdigit() or entry.name in (among[0], among[-1]):
            names.append(str(entry.relative_to(path)))
    return names


def plant(path, name, canary):
    """Move what has the name out of the store and put a link to it in its place."""
    canary.mkdir()
    shutil.move(path / name, canary / "kept")
    (path / name).symlink_to(canary / "kept")
    if (canary / "kept").is_dir():
        (canary / "kept" / "precious").write_text("precious")


def use(path):
    """Open it for writing and do what changes most files."""
    with Store.open(path, config=SMALL) as store:
        store.append_batch(batch(numbered(60, 100), 0), topic="t")
        store.append(Message(topic="t", body=b"x", keys="k"))
        store.append(Message(topic="t", body=b"at", deliver_at_ms=store.now() + 9_200_000))
        store.groups.commit("g", "t", {0: 5})
        publish(store, 4, [b"sunk"])
        store.advance()
        store.clean(total_bytes=8192)
        store.create_topic("gone", read_queues=1, write_queues=1)
        store.append(Message(topic="gone", body=b"x"))
        store.delete_topic("gone")
        store.flush()


def read(path):
    with Store.open(path, read_only=True) as store:
        bodies(store)
        store.query("t", "k")
        store.groups.offsets()


def copied(path, target):
    with Store.open(path, read_only=True) as store:
        store.snapshot(target)


def error_of(operation, *arguments):
    """The error of the tree that an operation raises, None for none; others fail the test."""
    try:
        operation(*arguments)
    except PyrocketError as error:
        return error
    return None


def linked_names(path):
    return [one.file for one in verify(path).findings if one.code == "STORE_LINKED"]


def test_a_linked_name_is_told_and_what_it_leads_to_is_left_alone(full, tmp_path):
    for number, name in enumerate(sorted({*names_of(full)} - {*ALLOWED})):
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
def test_a_link_to_nothing_is_refused_by_name(path, name):
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
def test_a_link_that_is_planted_while_a_store_is_open_is_not_followed(path, tmp_path, clock, name):
    canary = tmp_path / "canary"
    store = filled(path, clock=clock)
    with_timers(store, clock)
    publish(store, 1, [b"sunk"])
    # The store has files in it open, and may write to those.
    shutil.copytree(path / name, path / "copy")
    shutil.rmtree(path / name)
    canary.mkdir()
    shutil.move(path / "copy", canary / "kept")
    (path / name).symlink_to(canary / "kept")
    before = snapshot(canary)
    operations = {
        "append": lambda: store.append_batch(batch(numbered(60, 100), 0), topic="t"),
        "timers": lambda: with_timers(store, clock),
        "stage": lambda: publish(store, 2, [b"sunk"]),
        "commit": lambda: store.groups.commit("g", "t", {0: 3}),
        "topic": lambda: store.create_topic("u"),
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


def test_folders_on_another_disk_are_linked_as_rocketmq_lays_them_out(path, tmp_path):
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
def test_an_allowed_link_of_somebody_else_is_refused(path, tmp_path, name, of):
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


def test_a_deep_tree_in_the_scratch_folder_is_removed(path):
    """However deep: neither the stack nor the number of open files bounds it."""
    filled(path).close()
    scratch = os.open(path / "pyrocket/tmp", os.O_RDONLY)
    at = scratch
    for _ in range(1500):
        os.mkdir("deeper", dir_fd=at)
        below = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    reboot(path)
    (path / "abort").touch()
    filled(path, count=1).close()
    assert not os.listdir(path / "pyrocket/tmp")
