"""Processes that wait for a lock wake when it is released and never sleep for long."""

import errno
import os
import subprocess
import sys
import threading
import time

import pytest
from pyrocket.disk import io, lock
from pyrocket.disk.lock import WriteLock

RING = """
import os, sys
from pyrocket.disk.lock import SharedEvent
SharedEvent(os.open(sys.argv[1], os.O_RDWR)).notify(1)
"""

needs_futex = pytest.mark.skipif(lock._CALL_NUMBER is None, reason="no futex on this system")


@pytest.fixture
def word(tmp_path):
    descriptor = os.open(tmp_path / "word", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def sleeps_long(monkeypatch):
    """Allow long sleeps, so that a sleeper that is not woken fails the test."""
    monkeypatch.setattr(lock.SharedEvent, "longest_sleep_ns", 20 * 10**9)


@needs_futex
def test_another_process_wakes_a_sleeper(word, tmp_path):
    ours = lock.SharedEvent(word)
    ours.longest_sleep_ns = 999_000_000
    seen, sleeps = ours.sequence(), 0
    ringer = subprocess.Popen([sys.executable, "-c", RING, tmp_path / "word"])
    while ours.sequence() == seen:
        ours.wait(seen, 0)
        sleeps += 1
        assert sleeps < 60
    assert ringer.wait() == 0


@needs_futex
def test_a_wait_that_begins_after_a_notification_returns_immediately(word, sleeps_long):
    ours = lock.SharedEvent(word)
    seen = ours.sequence()
    ours.notify()
    began = time.monotonic()
    ours.wait(seen, 0)
    assert time.monotonic() - began < 10


@needs_futex
def test_only_sleepers_of_the_notified_kind_wake(word, sleeps_long):
    ours, awake = lock.SharedEvent(word), []
    asleep = threading.Barrier(3)

    def sleep(kind):
        asleep.wait()
        ours.wait(seen, 0, kind)
        awake.append(kind)

    seen = ours.sequence()
    sleepers = [threading.Thread(target=sleep, args=(kind,)) for kind in (1, 2)]
    for one in sleepers:
        one.start()
    asleep.wait()
    began = time.monotonic()
    time.sleep(2)  # Both are asleep now.
    ours.notify(kinds=2)
    sleepers[1].join()
    assert awake == [2]
    ours.notify(kinds=1)
    sleepers[0].join()
    assert time.monotonic() - began < 10


@needs_futex
def test_sleep_has_an_upper_limit(word):
    """The process that should notify may have been killed."""
    ours, began = lock.SharedEvent(word), time.monotonic()
    ours.wait(ours.sequence(), 60)
    ours.longest_sleep_ns = 20 * 10**9
    ours.wait(ours.sequence(), 60, max_ns=1000)
    assert time.monotonic() - began < 10


@needs_futex
def test_a_released_write_lock_wakes_the_waiting_threads(tmp_path, sleeps_long):
    def write_lock():
        return WriteLock(tmp_path / "mutex", tmp_path / "turnstile", lambda: 0)

    order = []

    def wait_for_the_lock(mine):
        with mine.hold(60_000):
            order.append(time.monotonic())

    first = write_lock()
    with first.hold(1000):
        waiting = [
            threading.Thread(target=wait_for_the_lock, args=(mine,))
            for mine in (write_lock(), write_lock())
        ]
        for one in waiting:
            one.start()
        # Both threads sleep by now.
        time.sleep(0.1)
        began = time.monotonic()
    for one in waiting:
        one.join()
    assert len(order) == 2
    assert order[-1] - began < 10


def no_futex(monkeypatch):
    monkeypatch.setattr(lock, "_CALL_NUMBER", None)


def full_disk(monkeypatch):
    def refuse(descriptor, data, offset):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(io, "write_at", refuse)


@pytest.mark.parametrize("lacking", [no_futex, full_disk])
def test_waiting_processes_poll_without_futexes(tmp_path, monkeypatch, lacking):
    lacking(monkeypatch)
    first, second = (
        WriteLock(tmp_path / "mutex", tmp_path / "turnstile", lambda: 0) for _ in range(2)
    )
    taken = threading.Event()

    def take():
        with second.hold(60_000):
            taken.set()

    waiting = threading.Thread(target=take)
    with first.hold(1000):
        waiting.start()
        assert not taken.wait(0.05)
    waiting.join()
    assert taken.is_set()
