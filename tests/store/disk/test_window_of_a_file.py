"""Windows of a log file are mapped once for many slices and have a maximum length."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyrocket.disk.file_queue import HUGE_PAGE_BYTES, KEPT_BYTES, FileQueue, file_name
from pyrocket.errors import StoreDamagedError

MIB = 1 << 20
SIZE = 128 * MIB

on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="reads the maps of a process in /proc"
)


@pytest.fixture
def run(tmp_path):
    one = FileQueue(tmp_path / "run", SIZE, tmp_path / "tmp")
    one.create(0)
    yield one
    one.close()


def mappings(run):
    """Return the sizes of this process's mappings of the queue's files, including deleted files."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    bounds = [line.split()[0].split("-") for line in lines if str(run.folder) in line]
    return [int(end, 16) - int(first, 16) for first, end in bounds]


@on_linux
def test_windows_near_each_other_share_one_mapping(run):
    kept = [run.window(at, 3 * MIB)[0] for at in range(5 * MIB, 25 * MIB, 4 * MIB)]
    assert len(kept) == 5
    assert mappings(run) == [KEPT_BYTES]


@on_linux
def test_another_window_replaces_the_mapped_window(run):
    run.write(100 * MIB, b"there")
    for at in (0, 50 * MIB, 100 * MIB):
        buffer, base = run.window(at, 5)
        assert (base, len(mappings(run))) == (at, 1)
    assert buffer.to_pybytes() == b"there"
    assert mappings(run) == [SIZE - 100 * MIB]


@on_linux
@pytest.mark.parametrize("length", [KEPT_BYTES - MIB, KEPT_BYTES, 64 * MIB])
def test_no_more_than_a_long_window_is_mapped_for_it(run, length):
    first = 3 * HUGE_PAGE_BYTES - 5
    buffer, base = run.window(first, length)
    assert (len(buffer), base) == (length, first)
    assert sum(mappings(run)) <= max(KEPT_BYTES, length + 2 * 4096)


@on_linux
def test_mapping_is_dropped_when_its_file_is_deleted(run):
    run.window(0, 10)
    other = FileQueue(run.folder, SIZE, run.folder.parent / "tmp")
    other.remove(0)
    with pytest.raises(FileNotFoundError):
        run.window(0, 10)
    assert mappings(run) == []


@on_linux
@pytest.mark.parametrize("end", [lambda run: run.close(), lambda run: run.remove(0)])
def test_mapping_is_dropped_when_the_queue_closes_or_deletes_the_file(run, end):
    run.window(0, 10)
    end(run)
    assert mappings(run) == []


def test_a_new_window_shows_a_replaced_file_and_an_earlier_window_the_old_file(run):
    run.write(7, b"old")
    before, _ = run.window(7, 3)
    other = FileQueue(run.folder, SIZE, run.folder.parent / "tmp")
    other.remove(0)
    other.create(0, b"new", 7)
    other.close()
    assert run.window(7, 3)[0].to_pybytes() == b"new"
    assert before.to_pybytes() == b"old"


def test_a_window_shows_data_appended_after_mapping(run):
    run.window(0, 10)
    run.write(MIB, b"later")
    assert run.window(MIB, 5)[0].to_pybytes() == b"later"


def test_a_file_truncated_after_mapping_raises_an_error(run):
    run.write(100, b"x")
    run.window(0, MIB)
    os.truncate(run.folder / file_name(0), 100)
    with pytest.raises(StoreDamagedError, match="shorter"):
        run.window(0, MIB)
    assert run.window(0, 100)[0].to_pybytes() == bytes(100)


@on_linux
@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="only reads of a tmpfs fill holes")
def test_holes_around_a_window_stay_holes():
    """Accessing a hole of a full tmpfs through a mapping raises SIGBUS."""
    folder = Path("/dev/shm") / f"pyrocket-window-{os.getpid()}"
    run = FileQueue(folder / "run", SIZE, folder / "tmp")
    try:
        run.create(0)
        run.write(4 * MIB + 100, b"x" * MIB)
        before = (run.folder / file_name(0)).stat().st_blocks
        assert run.window(4 * MIB + 100, MIB)[0].to_pybytes() == b"x" * MIB
        assert (run.folder / file_name(0)).stat().st_blocks == before
    finally:
        run.close()
        shutil.rmtree(folder)


LIMITED = """
import re, resource, sys
from pathlib import Path
from pyrocket.disk.file_queue import FileQueue

run = FileQueue(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
run.window(0, 1 << 20)
run.close()
used = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
buffer, base = run.window(5 << 20, 1 << 20)
print(base, len(buffer), buffer.to_pybytes()[:5].decode())
"""


@on_linux
def test_with_little_address_space_only_the_window_is_mapped(run):
    """As with `spark.executor.pyspark.memory`."""
    run.write(5 * MIB, b"hello")
    command = [sys.executable, "-c", LIMITED, run.folder, str(SIZE), run.folder.parent / "tmp"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(5 * MIB), str(MIB), "hello"]
