"""FIFOs, sockets, devices and huge sparse files in a store are reported and never block."""

import os
import shutil
import signal
import socket
import stat
from contextlib import contextmanager

import pytest
from pyrocket.disk import io
from pyrocket.disk.io import MAX_FILE_BYTES, SMALL_FILE_BYTES, read_or_none
from pyrocket.errors import StoreDamagedError
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.full_store import copied, descriptors, error_of, make_full, names_of, read, use

SECONDS = 60
TIB = 1 << 40
READ_BY_WRITERS = [
    *("abort", "checkpoint", "lock", "config/topics.json"),
    *("pyrocket/checkpoint", "pyrocket/cursors.json", "pyrocket/epochs.json", "pyrocket/state"),
    *("pyrocket/mutex", "pyrocket/sink.json", "pyrocket/store.json", "pyrocket/topics.json"),
    *("pyrocket/turnstile", "pyrocket/flush"),
]


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    path = tmp_path_factory.mktemp("special") / "full"
    make_full(path)
    return path


@contextmanager
def in_time():
    """Fail after a minute, because opening a FIFO without a peer would block for ever."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        # The length of a socket's path is limited, so use a short path.
        folder = os.open(path.parent, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def make_device(path):
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # like /dev/zero, which never ends


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes a device")
MAKERS = [
    pytest.param(make_fifo, "FIFO", READ_BY_WRITERS[::3], id="fifo"),
    pytest.param(make_fifo, "FIFO", None, id="fifo, every file", marks=pytest.mark.heavy),
    pytest.param(make_socket, "socket", ["lock"], id="socket"),
    pytest.param(make_device, "device", ["config/topics.json"], id="device", marks=as_root),
]


@pytest.mark.parametrize(("make", "kind", "files"), MAKERS)
def test_special_files_never_block(full, tmp_path, make, kind, files):
    files = files or [name for name in names_of(full) if (full / name).is_file()]
    reported = set()
    for number, name in enumerate(files):
        path = tmp_path / f"store-{number}"
        shutil.copytree(full, path)
        (path / name).unlink()
        make(path / name)
        before = descriptors()
        with in_time():
            errors = [
                # As strings, because the frames of an error reference mapped buffers.
                str(error_of(operation, *arguments))
                for operation, *arguments in [
                    (verify, path),
                    (copied, path, tmp_path / f"copy-{number}"),
                    (read, path),
                    (use, path),
                    (repair, path),
                ]
            ]
        assert descriptors() == before, name
        if any(f"{path / name} is a {kind}" in error for error in errors):
            reported.add(name)
    assert {*READ_BY_WRITERS} & {*files} <= reported


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("abort", SMALL_FILE_BYTES),
        ("lock", SMALL_FILE_BYTES),
        ("checkpoint", SMALL_FILE_BYTES),
        ("pyrocket/checkpoint", SMALL_FILE_BYTES),
        ("pyrocket/store.json", MAX_FILE_BYTES),
        ("pyrocket/epochs.json", MAX_FILE_BYTES),
        ("pyrocket/topics.json", MAX_FILE_BYTES),
        ("config/topics.json", MAX_FILE_BYTES),
    ],
)
def test_a_huge_sparse_file_is_rejected_because_of_its_length(full, tmp_path, name, most):
    path = tmp_path / "store"
    shutil.copytree(full, path)
    (path / f"{name}.bak").unlink(missing_ok=True)
    for length in (most + 1, TIB):
        os.truncate(path / name, length)
        error = error_of(use, path)
        assert f"{path / name} has {length} bytes" in str(error)
        assert f"at most {most}" in str(error)


def test_bytes_after_the_shared_state_are_ignored(full, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(full, path)
    for length in (4097, TIB):
        os.truncate(path / "pyrocket/state", length)
        with in_time():
            use(path)
            assert verify(path).ok


@pytest.mark.parametrize("name", ["pyrocket/timers", "pyrocket/keys", "pyrocket/ends.json"])
def test_a_huge_index_of_our_own_is_rebuilt_from_the_log(full, tmp_path, name):
    path = tmp_path / "store"
    shutil.copytree(full, path)
    files = [path / name] if (path / name).is_file() else (path / name).iterdir()
    for file in files:
        os.truncate(file, TIB)
    with in_time():
        use(path)
        assert verify(path).ok


def test_a_file_of_exactly_the_maximum_length_is_read(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10)
    assert read_or_none(file, 10) == b"x" * 10
    file.write_bytes(b"x" * 11)
    with pytest.raises(StoreDamagedError, match="STORE_FILE_SIZE"):
        read_or_none(file, 10)


def test_descriptors_are_blocking_after_the_check(tmp_path):
    (tmp_path / "file").touch()
    descriptor = io.open_file(tmp_path / "file", os.O_RDONLY)
    assert os.get_blocking(descriptor)
    os.close(descriptor)
