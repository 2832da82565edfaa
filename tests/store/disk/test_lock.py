"""Writer sessions and the write lock within one process; `tests/crash` has several processes."""

import threading
import time

import pytest
from pyrocket.disk.lock import FileLock, WriteLock
from pyrocket.disk.shared_state import lock_identity
from pyrocket.errors import StoreFailedError, StoreLockedError


@pytest.fixture
def turns(tmp_path):
    made = []

    def make():
        made.append(WriteLock(tmp_path / "mutex", tmp_path / "turnstile", lambda: 4711))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_shared_locks_exclude_only_exclusive_locks(tmp_path):
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.try_lock(shared=True)
    assert second.try_lock(shared=True)
    assert not first.try_lock(), "another descriptor holds a shared lock"
    second.unlock()
    assert first.try_lock()
    assert not second.try_lock(shared=True)
    assert first.try_lock(shared=True), "downgrade"
    assert second.try_lock(shared=True)
    first.close()
    assert second.try_lock()
    second.close()


def test_closing_another_descriptor_of_the_file_keeps_the_lock(tmp_path):
    held = FileLock(tmp_path / "lock")
    assert held.try_lock()
    (tmp_path / "lock").read_bytes()
    FileLock(tmp_path / "lock").close()
    assert not FileLock(tmp_path / "lock").try_lock()
    held.close()


def test_a_lock_file_that_exists_is_not_written_again(tmp_path):
    path = tmp_path / "lock"
    FileLock(path, content=b"lock").close()
    before = lock_identity(path)
    FileLock(path, content=b"lock").close()
    assert path.read_bytes() == b"lock"
    assert lock_identity(path) == before
    assert lock_identity(tmp_path / "other") is None


def test_closed_lock_raises_an_error(tmp_path):
    lock = FileLock(tmp_path / "lock")
    lock.close()
    lock.close()
    with pytest.raises(StoreFailedError, match="forked"):
        lock.try_lock()


@pytest.mark.parametrize("same", [True, False], ids=["one-object", "two-objects"])
def test_write_lock_has_one_holder_at_a_time(turns, same):
    one = turns()
    other = one if same else turns()
    inside, most = [], []

    def work(mine):
        for _ in range(50):
            with mine.hold(10_000):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0001)
                inside.pop()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in (one, other, one)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 150


@pytest.mark.parametrize("same", [True, False], ids=["one-object", "two-objects"])
def test_a_lock_timeout_reports_the_holder(turns, same):
    one = turns()
    other = one if same else turns()
    with one.hold(1000):
        begun = time.monotonic()
        with pytest.raises(StoreLockedError, match="process 4711") as caught, other.hold(60):
            pass
        assert 0.05 < time.monotonic() - begun < 5
    assert caught.value.code == "LOCK_TIMEOUT"
    with other.hold(1000):
        pass


def test_write_lock_is_released_after_an_error(turns):
    one = turns()
    with pytest.raises(ZeroDivisionError), one.hold(1000):
        raise ZeroDivisionError
    with turns().hold(100):
        pass
