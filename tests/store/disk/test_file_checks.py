"""Missing files of a log are found from the names of the others and from its end."""

import pytest
from pyrocket.disk.file_checks import missing_files
from pyrocket.disk.file_queue import FileQueue, file_name

SIZE = 100


@pytest.mark.parametrize(
    ("starts", "end", "missing"),
    [
        ([], 100, []),  # A new log starts at the offset of one file size.
        ([], 101, [100]),
        ([], 300, [200]),
        ([], 350, [300]),
        ([100, 200], 250, []),
        ([100, 200], 350, [300]),
        ([100, 300], 350, [200]),
        ([200, 300], 350, []),  # The first file may have been deleted by cleaning.
        ([100, 300], None, [200]),
    ],
)
def test_files_missing_between_others_or_before_the_end_are_found(tmp_path, starts, end, missing):
    folder = tmp_path / "log"
    folder.mkdir()
    for start in starts:
        (folder / file_name(start)).write_bytes(bytes(SIZE))
    run = FileQueue(folder, SIZE, tmp_path / "scratch", writable=False)
    assert missing_files(run, end) == missing
