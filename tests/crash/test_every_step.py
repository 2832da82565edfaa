"""A writer dies at each single step of an append; the next writer continues correctly."""

import pytest
from crash.children import append_until_step
from crash.power_loss import HALVES
from pyrocket import Store
from pyrocket.disk.shared_state import PUBLISHED
from support.shares import STEPS
from support.stores import SMALL, bodies, log_files, message, scan, words

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("survivor", [False, True], ids=["reopened", "survivor"])
@pytest.mark.parametrize("every", STEPS)
def test_a_writer_that_dies_at_any_step_of_an_append_leaves_a_consistent_log(
    nursery, path, tmp_path, half, survivor, every
):
    """Batches of six rows of 700 bytes create new log files; every second batch also creates queue
    files.
    """
    expected, page = [], words(path)
    other = Store.open(path, config=SMALL) if survivor else None
    fates, checked = set(), 0
    for step in range(0, 200, every):
        rows = [f"{step}:{n}:".ljust(700, ".") for n in range(6)]
        trace, before = tmp_path / f"trace{step}", page[PUBLISHED]
        status = nursery.run(
            append_until_step, path=path, rows=rows, step=step, half=half, trace=trace
        )
        assert status in (0, 9)
        if page[PUBLISHED] > before:
            assert f"word {PUBLISHED}" in trace.read_text().splitlines()
            expected += [row.encode() for row in rows]
        fates.add(page[PUBLISHED] > before)
        check_readers(path, expected, checked)
        one = other or Store.open(path, config=SMALL)
        one.append(message(b"after %d" % step))
        expected.append(b"after %d" % step)
        assert [body for _, body in scan(one, "t", 0, checked)] == expected[checked:]
        checked = len(expected)
        assert not behind(path, page[PUBLISHED]).strip(b"\0"), (
            "records that were not published are erased"
        )
        if not survivor:
            one.close(clean=step % 2 == 0)
        if status == 0:
            break
    assert status == 0
    with Store.open(path, read_only=True) as reader:
        assert bodies(reader)[0] == expected
    assert fates == {True, False}
    if other:
        other.close()
    page.close()


def check_readers(path, expected, checked):
    """Before the recovery, readers see a prefix without a gap."""
    with Store.open(path, read_only=True) as reader:
        found = [body for _, body in scan(reader, "t", 0, checked)]
        assert found in ([], expected[checked:]), "a batch is visible completely or not at all"


def behind(path, end):
    """Return the bytes of the log after `end`."""
    return b"".join(
        file.read_bytes()[max(0, end - int(file.name)) :]
        for file in log_files(path)
        if int(file.name) + SMALL.log_file_bytes > end
    )
