"""Fixed-size files that form one sequence of bytes."""

import os

import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.file_queue import FileQueue, file_name, parse_file_name
from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.machine import refuse_network_file_system
from pyrocket.errors import StoreDamagedError, StoreUnavailableError, UnsupportedError

SIZE = 4096


@pytest.fixture
def run(tmp_path):
    one = FileQueue(tmp_path / "run", SIZE, tmp_path / "tmp")
    yield one
    one.close()


def test_names_are_rocketmqs():
    assert file_name(3 * 2**30) == "00000000003221225472"
    assert parse_file_name("00000000003221225472") == 3 * 2**30
    for foreign in ("3221225472", "0000000000322122547x", "\u0660" * 20, "", ".DS_Store"):
        assert parse_file_name(foreign) is None


def test_new_files_are_complete_and_sparse_before_they_get_their_name(run, tmp_path):
    run.create(SIZE)
    (file,) = (tmp_path / "run").iterdir()
    assert (file.name, file.stat().st_size, file.stat().st_blocks) == (file_name(SIZE), SIZE, 0)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_bytes_written_to_many_files_are_read_back(run):
    for start in range(0, 8 * SIZE, SIZE):
        run.create(start)
        run.write(start + 5, b"%d" % start)
    for start in range(0, 8 * SIZE, SIZE):
        assert run.read(start + 5, 5).rstrip(b"\0") == b"%d" % start
    assert run.starts() == list(range(0, 8 * SIZE, SIZE))
    assert len(run.read(SIZE - 3, 100)) == 3
    with pytest.raises(FileNotFoundError):
        run.read(8 * SIZE, 1)


def test_a_window_has_the_requested_bytes_and_stays_valid_after_the_queue_is_closed(run):
    run.create(0)
    run.write(100, b"hello")
    buffer, base = run.window(100, 5)
    run.close()
    run.remove(0)
    assert base == 100
    assert buffer.to_pybytes() == b"hello"


@pytest.mark.parametrize("name", ["x", file_name(1), file_name(SIZE - 1), file_name(0) + ".tmp"])
def test_foreign_names_are_rejected_with_an_error_that_names_them(run, tmp_path, name):
    run.create(0)
    (tmp_path / "run" / name).touch()
    with pytest.raises(StoreDamagedError, match=name) as caught:
        run.starts()
    assert caught.value.code == "STORE_FOREIGN_FILE"


def test_file_replaced_by_another_process_is_opened_again(run, tmp_path):
    other = FileQueue(tmp_path / "run", SIZE, tmp_path / "tmp")
    run.create(0)
    run.write(0, b"old")
    assert other.read(0, 3) == b"old"
    run.remove(0)
    run.create(0)
    run.write(0, b"new")
    assert other.read(0, 3) == b"new"
    other.close()


def test_a_file_that_another_process_deleted_is_created_again(run, tmp_path):
    """A writer whose append failed has files open that the next writer deletes."""
    other = FileQueue(tmp_path / "run", SIZE, tmp_path / "tmp")
    run.create(0)
    run.write(0, b"old")
    other.remove(0)
    run.create(0)
    run.write(0, b"new")
    assert other.read(0, 3) == b"new"
    other.close()


def test_a_short_file_is_an_error_rather_than_a_crash(run, tmp_path):
    run.create(0)
    os.truncate(tmp_path / "run" / file_name(0), 100)
    with pytest.raises(StoreDamagedError, match="shorter"):
        run.window(50, 100)


def test_a_zeroed_range_is_a_hole(run, tmp_path):
    big = FileQueue(tmp_path / "big", 8 << 20, tmp_path / "tmp")
    big.create(0)
    big.write(5 << 20, b"x" * 10)
    big.write((5 << 20) - 5, b"y" * 5)
    big.zero(5 << 20, 8 << 20)
    assert big.read((5 << 20) - 5, 20) == b"y" * 5 + bytes(15)
    assert (tmp_path / "big" / file_name(0)).stat().st_blocks * 512 < 3 << 20
    big.close()


def test_a_failed_creation_leaves_no_file_and_no_incomplete_file(run, tmp_path, monkeypatch):
    for name in ("set_length", "write_at", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(io, name, lambda *given: (_ for _ in ()).throw(OSError(28, "full")))
            with pytest.raises(OSError, match="full"):
                run.create(0, b"content")
        assert run.starts() == []
        assert list((tmp_path / "tmp").iterdir()) == []


def test_many_files_need_few_descriptors(run):
    for start in range(0, 64 * SIZE, SIZE):
        run.create(start)
        run.write(start, b"x")
    mine = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if _is_open(n)]
    assert sum(str(run.folder) in name for name in mine) <= 4


def _is_open(descriptor):
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


def test_a_failed_replacement_leaves_the_old_file(tmp_path, monkeypatch):
    path, scratch = tmp_path / "config" / "topics.json", tmp_path / "tmp"
    replace_file(path, b"one", scratch, backup=True)
    for name in ("write_at", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(io, name, lambda *given: (_ for _ in ()).throw(OSError(28, "full")))
            with pytest.raises(OSError, match="full"):
                replace_file(path, b"two", scratch, backup=True)
        assert path.read_bytes() == b"one"
        assert list(scratch.iterdir()) == []
    replace_file(path, b"two", scratch, backup=True)
    assert path.read_bytes() == b"two"
    assert path.with_name("topics.json.bak").read_bytes() == b"one"
    assert read_or_none(tmp_path / "none") is None


def test_scratch_folder_is_cleared(tmp_path):
    (tmp_path / "grave" / "deep").mkdir(parents=True)
    (tmp_path / "draft").touch()
    io.clear_directory(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:3], at))
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    io.write_at(descriptor, memoryview(b"0123456789"), 2)
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"\0\x000123456789"


SHARED = ["nfs", "nfs4", "cifs", "smb3", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs"]
SHARED += ["ocfs2", "gfs2", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.gcsfuse", "fuse.s3fs"]
SHARED += ["fuse.juicefs", "fuse.rclone", "fuse.goofys", "fuse.sshfs", "fuse mountpoint-s3"]
LOCAL = ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "virtiofs", "fuseblk", "apfs", "f2fs"]
LOCAL += ["fuse.fuse-overlayfs", "fuse.grpcfuse", "fuse.osxfs", "fuse.lxcfs", "fuse /dev/sdb1"]


def mounted(path, monkeypatch, kind):
    """Fake a mount table with a mount of this kind, or kind and source, for `path`."""
    device = path.stat().st_dev
    place = f"{os.major(device)}:{os.minor(device)}"
    kind = kind if " " in kind else f"{kind} host:/x"
    table = f"20 1 0:5 / /proc rw - proc proc rw\n36 35 {place} / /mnt rw shared:1 - {kind} rw\n"
    monkeypatch.setattr("pyrocket.disk.machine.Path.read_text", lambda path: table)


@pytest.mark.parametrize("kind", SHARED)
def test_network_file_systems_are_rejected(tmp_path, monkeypatch, kind):
    mounted(tmp_path, monkeypatch, kind)
    with pytest.raises(UnsupportedError, match=kind.split()[-1]) as caught:
        refuse_network_file_system(tmp_path)
    assert caught.value.code == "UNSUPPORTED_FILE_SYSTEM"


@pytest.mark.parametrize("kind", LOCAL)
def test_local_file_systems_are_accepted(tmp_path, monkeypatch, kind):
    mounted(tmp_path, monkeypatch, kind)
    refuse_network_file_system(tmp_path)


def test_nothing_is_written_without_io(tmp_path, monkeypatch):
    """If all functions of `io` fail, an attempt to create a store leaves no file."""
    for name in ("write_at", "rename", "set_length", "make_directory"):
        monkeypatch.setattr(io, name, lambda *given: (_ for _ in ()).throw(OSError(30, "no")))
    with pytest.raises(StoreUnavailableError, match="could not be written"):
        Store.open(tmp_path / "new", create=True)
    assert not (tmp_path / "new").exists()
