"""All processes use a test clock in the store's directory; opening such a store logs a warning."""

import logging
import subprocess
import sys
import threading

import pytest
from pyrocket import AtTime, Store
from pyrocket.errors import InvalidInputError, StoreDamagedError
from pyrocket.testing import FileClock
from support.forked import Forked
from support.producers import send_one
from support.stores import SMALL, FakeClock, message, snapshot

NOON = 1_700_000_000_000


def times(store, topic="t"):
    return [
        (one.born_timestamp, one.store_timestamp)
        for queue_id, known in store.offsets(topic).items()
        for one in store.read(topic, queue_id, known.minimum, 100)
    ]


@pytest.fixture
def file_clock(path):
    clock = FileClock(path)
    clock.set(NOON)
    return clock


def test_a_store_uses_the_time_of_the_clock_file(path, file_clock):
    with Store.open(path, create=True, config=SMALL) as store:
        store.append(message())
        file_clock.advance(1000)
        store.append(message())
        file_clock.set(NOON + 5000)
        store.append(message())
        assert times(store) == [(NOON + later, NOON + later) for later in (0, 1000, 5000)]
        assert store.offset_by_time("t", 0, NOON + 1001) == 2
        assert store.groups.reset("g", "t", AtTime(NOON + 1000))[0] == 1
    assert f'"timestamp":{NOON + 5000}' in (path / "config/subscriptionGroup.json").read_text()


def test_other_processes_use_the_clock_file(path, file_clock):
    with Store.open(path, create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        for later in (0, 7):
            file_clock.set(NOON + later)
            child = Forked(send_one, str(path))
            child.communicate(60)
            assert child.returncode == 0
        assert times(store) == [(NOON, NOON), (NOON + 7, NOON + 7)]


def test_a_given_clock_takes_precedence(path, file_clock):
    with Store.open(path, create=True, config=SMALL, clock=FakeClock(5)) as store:
        store.append(message())
        assert times(store) == [(5, 5)]


def test_a_store_without_a_clock_file_uses_the_wall_clock_and_logs_nothing(path, caplog):
    with caplog.at_level(logging.DEBUG, "pyrocket"), Store.open(path, create=True) as store:
        store.append(message())
        assert times(store)[0][1] > NOON
    assert not caplog.records
    assert not (path / "pyrocket/clock").exists()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_with_a_test_clock_logs_a_warning(path, file_clock, caplog, read_only):
    Store.open(path, create=True).close()
    caplog.clear()
    with Store.open(path, read_only=read_only):
        (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert str(path / "pyrocket/clock") in record.getMessage()
    assert str(NOON) in record.getMessage()


def test_reading_a_store_with_a_clock_changes_no_files(path, file_clock):
    Store.open(path, create=True).close()
    before = snapshot(path)
    with Store.open(path, read_only=True) as store:
        store.position()
    assert snapshot(path) == before


def test_after_the_clock_file_is_deleted_the_wall_clock_is_used(path, file_clock):
    file_clock.remove()
    file_clock.remove()
    with Store.open(path, create=True) as store:
        store.append(message())
        assert times(store)[0][1] > NOON


def test_calling_a_clock_returns_its_time(file_clock, path):
    assert file_clock() == FileClock(path)() == NOON
    assert file_clock.advance(3) == NOON + 3
    file_clock.set(0)
    assert file_clock() == 0
    with pytest.raises(FileNotFoundError):
        FileClock(path / "elsewhere")()


@pytest.mark.parametrize("time", [-1, 1 << 63])
def test_an_invalid_time_is_rejected(file_clock, time):
    with pytest.raises(InvalidInputError):
        file_clock.set(time)
    assert file_clock() == NOON


@pytest.mark.parametrize("content", [b"", b"1234567", b"123456789"])
def test_an_invalid_clock_file_is_reported(path, content):
    Store.open(path, create=True).close()
    (path / "pyrocket/clock").write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(StoreDamagedError, match="Delete it") as caught:
            Store.open(path, read_only=read_only)
        assert caught.value.code == "CLOCK_DAMAGED"


def test_no_reader_sees_a_partly_written_time(path, file_clock):
    """The two times differ in all bytes."""
    low, high = 0x0101010101010101, 0x7E7E7E7E7E7E7E7E
    file_clock.set(low)
    code = (
        "import sys; from pathlib import Path\n"
        "from pyrocket.disk.clock_file import ClockFile\n"
        f"clock = ClockFile(Path({str(path / 'pyrocket/clock')!r}))\n"
        "print('ready', flush=True)\n"
        "seen = {clock() for _ in range(300_000)}\n"
        "while len(seen) < 2: seen.add(clock())\n"
        f"sys.exit(seen != {{{low}, {high}}})"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline()
        done = threading.Event()
        mover = threading.Thread(target=_move, args=(file_clock, low, high, done))
        mover.start()
        try:
            assert child.wait(60) == 0
        finally:
            done.set()
            mover.join()


def _move(clock, low, high, done):
    while not done.is_set():
        clock.set(high)
        clock.set(low)


def test_importing_the_store_does_not_import_the_test_clock():
    code = "import sys, pyrocket.store; sys.exit('pyrocket.testing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
