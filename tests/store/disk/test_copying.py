"""Copies of files have the same bytes, and holes stay holes."""

import errno
import os

import pytest
from pyrocket.disk import io
from pyrocket.disk.copying import Copies
from pyrocket.disk.io import data_from

MIB = 1 << 20


@pytest.fixture
def sparse(tmp_path):
    """A file of 64 MiB of which two parts have been written."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
        file.seek(5 * MIB)
        file.write(b"middle")
        file.seek(40 * MIB)
        file.write(b"late")
    return path


def test_written_parts_are_found(sparse):
    first = data_from(sparse, 0)
    assert first <= 5 * MIB
    assert data_from(sparse, 5 * MIB) == 5 * MIB
    assert data_from(sparse, 63 * MIB) <= 64 * MIB
    assert data_from(sparse, 70 * MIB) == 70 * MIB


def test_a_copy_has_the_same_bytes_and_takes_no_more_space(sparse, tmp_path):
    copies = Copies()
    copies.copy(sparse, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == sparse.read_bytes()
    assert (tmp_path / "copy").stat().st_blocks <= sparse.stat().st_blocks + 2 * 4 * MIB // 512
    assert copies.copied_files == 1


def test_a_copy_limited_to_a_length_has_zeros_after_it(sparse, tmp_path):
    Copies().copy(sparse, tmp_path / "copy", 5 * MIB + 3)
    copied = (tmp_path / "copy").read_bytes()
    assert len(copied) == 64 * MIB
    assert copied.rstrip(b"\0") == bytes(5 * MIB) + b"mid"


def test_a_file_is_linked_or_copied_if_links_are_impossible(sparse, tmp_path, monkeypatch):
    copies = Copies()
    copies.link(sparse, tmp_path / "link")
    copies.sync_links()
    assert os.path.samefile(sparse, tmp_path / "link")

    def refuse(one, other):
        raise OSError(errno.EXDEV, "other file system")

    monkeypatch.setattr(io, "link", refuse)
    copies.link(sparse, tmp_path / "copy")
    assert not os.path.samefile(sparse, tmp_path / "copy")
    assert (copies.linked_files, copies.copied_files) == (1, 1)
    assert copies.unlinkable == "other file system"


def test_an_error_not_caused_by_missing_links_is_raised(sparse, tmp_path):
    with pytest.raises(FileNotFoundError):
        Copies().link(tmp_path / "nothing", tmp_path / "link")
