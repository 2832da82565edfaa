"""If a snapshot fails, the error names the source or the target, whichever caused the failure."""

import errno
import os

import pytest
from click.testing import CliRunner
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.errors import StorePermissionError, StoreUnavailableError
from pyrocket.tools.cli import main
from support.stores import filled


@pytest.fixture(params=["writing", "read only"])
def source(path, request):
    filled(path).close()
    with Store.open(path, read_only=request.param == "read only") as store:
        yield store


@pytest.mark.parametrize("operation", ["set_length", "write_at", "sync", "rename", "set_time"])
def test_a_full_disk_of_the_target_is_reported_for_the_target(
    source, tmp_path, monkeypatch, operation
):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "copies" / "first"
    with monkeypatch.context() as patch:
        patch.setattr(io, operation, fail)
        with pytest.raises(StoreUnavailableError, match=rf"{target} could not.*No space") as caught:
            source.snapshot(target)
    assert str(source.path) not in caught.value.message
    assert "another file system" in caught.value.remedy
    assert not list(target.parent.iterdir())


def test_a_failed_link_is_an_error_of_the_target(source, tmp_path, monkeypatch):
    def fail(one, other):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(one), None, str(other))

    monkeypatch.setattr(io, "link", fail)
    with pytest.raises(StoreUnavailableError, match=rf"{tmp_path / 'copy'} could not"):
        source.snapshot(tmp_path / "copy")


@pytest.mark.parametrize("call", ["open", "read"])
def test_an_unreadable_source_is_reported(source, tmp_path, monkeypatch, call):
    real, broken = io.open_file, []

    def fail(path, flags):
        concerned = str(path).startswith(str(source.path / "commitlog"))
        if concerned and call == "open":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        descriptor = real(path, flags)
        broken.extend([descriptor] if concerned else [])
        return descriptor

    def fail_to_read(descriptor, length, position, real=os.pread):
        if descriptor in broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, length, position)

    monkeypatch.setattr(io, "open_file", fail)
    monkeypatch.setattr("pyrocket.disk.copying.os.pread", fail_to_read)
    with pytest.raises(StoreUnavailableError, match=r"READ_FAILED.*could not be read") as caught:
        source.snapshot(tmp_path / "copy")
    assert "Repair the disk" in caught.value.remedy


def test_a_target_that_cannot_be_created_is_reported(source, tmp_path):
    for place in ("/proc/x/y", tmp_path / "file" / "copy", tmp_path / ("long" * 100)):
        (tmp_path / "file").touch()
        with pytest.raises(StoreUnavailableError, match=rf"WRITE_FAILED.*{place} could not"):
            source.snapshot(place)


def test_a_target_without_permission_is_reported(source, tmp_path, monkeypatch):
    def refuse(path):
        raise StorePermissionError("no") from PermissionError(errno.EACCES, "no", str(path))

    monkeypatch.setattr(io, "make_directory", refuse)
    with pytest.raises(StorePermissionError, match=r"copy cannot be created.*Name a target"):
        source.snapshot(tmp_path / "copy")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_without_write_permission_for_the_source_the_error_suggests_read_only(
    path, tmp_path, monkeypatch, number
):
    filled(path).close()
    command = ["snapshot", str(path), str(tmp_path / "copy")]

    def refuse(folder):
        if str(folder).startswith(str(path)):
            raise OSError(number, os.strerror(number), str(folder))

    with monkeypatch.context() as patch:
        patch.setattr("pyrocket.engine.writer_session.io.make_directory", refuse)
        done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert "--read-only" in done.stderr
    assert CliRunner().invoke(main, [*command, "--read-only"]).exit_code == 0
