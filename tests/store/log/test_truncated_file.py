"""The last bytes of a log file show whether it has been truncated."""

import shutil

import pytest
from pyrocket.log import valid_end
from pyrocket.log.valid_end import is_cut
from support.stores import SMALL, filled, log_files


@pytest.fixture
def files(path):
    """A log of two files; the first is full."""
    filled(path, count=25, config=SMALL.with_sizes(log_file_bytes=8192), body_bytes=300).close()
    first, second = log_files(path)
    return first, second


def end_of(file):
    return len(file.read_bytes().rstrip(b"\0"))


def test_file_truncated_anywhere_in_its_messages_is_detected(files, tmp_path):
    for file in files:
        copy = shutil.copy(file, tmp_path / file.name)
        for length in range(end_of(file) - 1, 0, -7):
            with open(copy, "r+b") as opened:
                opened.truncate(length)
            if not file.read_bytes()[:length].endswith(b"\0"):
                assert is_cut(copy, int(file.name)), length


def test_complete_files_and_files_that_lack_only_zeros_are_not_reported_as_truncated(files):
    full, open_one = files
    assert not is_cut(full, int(full.name))
    for length in (8192, 4096 + end_of(open_one) // 4096 * 4096, end_of(open_one) + 8):
        with open_one.open("r+b") as opened:
            opened.truncate(length)
        assert not is_cut(open_one, int(open_one.name)), length


def test_a_long_file_truncated_in_the_middle_is_detected(path, monkeypatch):
    """Only the last part of a long file is read."""
    monkeypatch.setattr(valid_end, "_TAIL_BYTES", 8192)
    config = SMALL.with_sizes(log_file_bytes=65536)
    filled(path, count=140, config=config, body_bytes=300).close()
    (file,) = log_files(path)
    assert not is_cut(file, 65536)
    with file.open("r+b") as opened:
        opened.truncate(40_000)
    assert is_cut(file, 65536)
