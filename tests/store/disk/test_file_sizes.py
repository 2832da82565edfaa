"""The file size is inferred from lengths and names even if some of them are wrong."""

import pytest
from pyrocket.disk.file_checks import other_size, usual_size
from pyrocket.disk.file_queue import file_name

S = 4096


def is_size(size):
    return size > 0 and size % 1024 == 0


def folders(root, *files_of_each):
    """Create folders with files (start, length)."""
    for number, files in enumerate(files_of_each):
        folder = root / str(number)
        folder.mkdir()
        for start, length in files:
            with (folder / file_name(start)).open("wb") as file:
                file.truncate(length)
        (folder / "foreign").touch()
        yield folder


CASES = {
    "all alike": [[(S, S), (2 * S, S)]],
    "one truncated": [[(S, S), (2 * S, S // 2), (3 * S, S)]],
    "one of two files truncated: the names show it": [[(S, S // 2), (2 * S, S)]],
    "the other of two files truncated": [[(S, S), (2 * S, S // 2)]],
    "a length that no file can have": [[(S, 1000), (2 * S, S)]],
    "more truncated files than complete ones": [
        [(S, S), (2 * S, S // 2), (3 * S, S // 2), (4 * S, S // 2)]
    ],
    "one too long": [[(0, 2 * S), (S, S), (2 * S, S)]],
    "one gone": [[(0, S), (2 * S, S)]],
    "one file missing and one truncated": [[(0, S), (2 * S, S // 2)]],
    "an empty last file": [[(S, S), (2 * S, 0)]],
    "a foreign name": [[(S, S), (2 * S, S), (2 * S + 7, 7)]],
    "the longer one of two single files": [[(0, S // 2)], [(0, S)]],
    "single files": [[(0, S)], [(0, S // 2)], [(0, S)]],
}


@pytest.mark.parametrize("case", CASES)
def test_the_size_contradicted_by_the_fewest_files_is_used(tmp_path, case):
    made = list(folders(tmp_path, *CASES[case]))
    assert usual_size(made, 0, is_size=is_size) == S
    assert other_size(made, S, is_size=is_size) == 0


def test_the_preferred_size_is_used_if_files_are_inconclusive(tmp_path):
    made = list(folders(tmp_path, [(0, S // 2)], [(0, S)]))
    assert usual_size(made, S // 2, is_size=is_size) == S // 2
    assert usual_size(made, 3 * S, is_size=is_size) == S, "no file has the preferred size"


def test_without_files_or_with_only_invalid_lengths_no_size_is_inferred(tmp_path):
    assert usual_size([tmp_path / "none"], S, is_size=is_size) == 0
    assert usual_size(folders(tmp_path, [(0, 1000)], [(S, 0)]), S, is_size=is_size) == 0


def test_a_size_is_contradicted_only_if_no_file_agrees_with_it(tmp_path):
    made = list(folders(tmp_path, [(S, S), (2 * S, S)], [(0, S)]))
    assert other_size(made, S // 2, is_size=is_size) == S
    assert other_size(made, 2 * S, is_size=is_size) == S
    assert other_size([*made, *folders(tmp_path / "0", [(0, 2 * S)])], 2 * S, is_size=is_size) == 0


@pytest.mark.parametrize(
    ("length", "denied"), [(2 * S, True), (S // 2, False), (2 * S + 10, False)]
)
def test_a_single_file_contradicts_a_size_only_if_it_is_longer_and_of_a_valid_length(
    tmp_path, length, denied
):
    """The file may have been truncated or extended."""
    found = other_size(folders(tmp_path, [(0, length)]), S, is_size=is_size)
    assert bool(found) == denied
