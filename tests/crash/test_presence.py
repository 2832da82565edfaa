"""Either one RocketMQ broker or any number of pyrocket's processes can have a store open, and a
forked child cannot write.
"""

import os
import signal

import pytest
from crash.children import hold_open, lock_like_java, try_to_lock_like_java
from crash.nursery import wait_for
from pyrocket import Store
from pyrocket.errors import StoreLockedError
from support.stores import SMALL, bodies, message, snapshot

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]

REFUSED = 7


def test_a_running_broker_refuses_writers_but_not_readers(nursery, path, tmp_path):
    with Store.open(path, config=SMALL) as store:
        store.append(message())
    java = nursery.start(lock_like_java, path=path, ready=tmp_path / "ready")
    wait_for(tmp_path / "ready")
    before = snapshot(path / "commitlog"), snapshot(path / "consumequeue")
    with pytest.raises(StoreLockedError, match="Java") as caught:
        Store.open(path)
    assert caught.value.code == "STORE_IN_USE"
    with Store.open(path, read_only=True) as reader:
        assert bodies(reader)[0] == [b"x"]
    assert (snapshot(path / "commitlog"), snapshot(path / "consumequeue")) == before
    nursery.kill(java)
    with Store.open(path, config=SMALL) as store:
        store.append(message())


def test_a_broker_cannot_start_while_a_writer_has_the_store_open(nursery, path):
    first, second = Store.open(path, config=SMALL), Store.open(path, config=SMALL)
    reader = Store.open(path, read_only=True)
    first.append(message())
    assert nursery.run(try_to_lock_like_java, path=path) == REFUSED
    first.close()
    assert nursery.run(try_to_lock_like_java, path=path) == REFUSED
    second.close()
    assert nursery.run(try_to_lock_like_java, path=path) == 0
    reader.close()


def test_a_rocketmq_broker_that_ran_between_two_writers_is_detected(path):
    """A RocketMQ broker rewrites `lock` when it starts, which invalidates the shared state."""
    with Store.open(path, config=SMALL) as store:
        store.append(message())
    (path / "lock").write_bytes(b"lock")
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == [b"x"]
        assert store.history.epoch == 0
    (path / "lock").write_bytes(b"lock")
    (path / "abort").touch()
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == [b"x"]
        assert store.history.epoch == 1


def test_recovery_waits_until_all_other_processes_have_closed_the_store(path):
    first = Store.open(path, config=SMALL)
    first.append(message())
    os.utime(path / "lock", (1, 1))
    with pytest.raises(StoreLockedError) as caught:
        Store.open(path)
    assert caught.value.code == "STORE_NEEDS_RECOVERY"
    first.append(message())
    first.close()
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == [b"x", b"x"]


def test_the_lock_file_has_the_content_of_rocketmqs(path):
    assert (path / "lock").read_bytes() == b"lock"


def test_a_forked_child_cannot_write_and_holds_no_lock_of_its_dead_parent(nursery, path, tmp_path):
    parent = nursery.start(hold_open, path=path, ready=tmp_path / "ready")
    wait_for(tmp_path / "ready")
    child, status = wait_for(tmp_path / "ready.child").read_text().split()
    assert status == "STORE_FAILED"
    nursery.kill(parent)
    try:
        os.kill(int(child), 0)
        assert nursery.run(try_to_lock_like_java, path=path) == 0
        with Store.open(path, config=SMALL) as store:
            store.append(message(b"after"))
            assert bodies(store)[0] == [b"parent", b"after"]
        assert not (path / "abort").exists(), "no other process had the store open"
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_closing_in_a_forked_child_does_not_affect_the_parent(nursery, path):
    store = Store.open(path, config=SMALL)
    store.append(message(b"1"))
    child = os.fork()
    if child == 0:
        try:
            store.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert nursery.run(try_to_lock_like_java, path=path) == REFUSED
    store.append(message(b"2"))
    assert bodies(store)[0] == [b"1", b"2"]
    store.close()
