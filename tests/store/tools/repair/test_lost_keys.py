"""Keys missing in the index are found, and the error names the file that should have them."""

import shutil
from dataclasses import replace

import pytest
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.report import Severity
from pyrocket.tools.verify.verify import verify
from support.damage import index_files
from support.stores import SMALL, filled, overwrite

ITEM = 20
FIRST_ITEM = 40 + 4 * 20 + ITEM


@pytest.fixture
def sound(path):
    """Three index files with room for 79 items each; the last file has 42 items."""
    filled(path, count=200).close()
    assert len(index_files(path)) == 3
    assert not verify(path).findings
    return path


def damage_item(path, file, item, at):
    place = FIRST_ITEM + ITEM * item + at
    name = index_files(path)[file]
    overwrite(name, bytes([name.read_bytes()[place] ^ 1]), place)
    return f"index/{name.name}"


def remove(path, files):
    for file in index_files(path)[files]:
        file.unlink()


@pytest.mark.parametrize(
    ("place", "files"), [("store", slice(0, 3)), ("copy", slice(1, 3)), ("store", slice(2, 3))]
)
def test_index_files_missing_after_a_clean_shutdown_are_found_and_rebuilt(sound, files, place):
    path = sound if place == "store" else shutil.copytree(sound, sound.parent / "copy")
    remove(path, files)
    left = index_files(path)
    (finding,) = verify(path).findings
    assert (finding.code, finding.severity) == ("KEY_INDEX_BEHIND", Severity.WARNING)
    assert finding.file == (f"index/{left[-1].name}" if left else "index")
    assert finding.what.startswith(f"{200 - 79 * len(left)} keys")
    repair(path)
    assert len(index_files(path)) == 3
    assert not verify(path).findings


def test_a_missing_first_index_file_is_found_and_rebuilt(sound):
    remove(sound, slice(0, 1))
    (finding,) = verify(sound).findings
    assert (finding.code, finding.file) == ("KEY_INDEX_GAPS", f"index/{index_files(sound)[0].name}")
    assert finding.what == "79 keys at the beginning of the log are not in the index."
    repair(sound)
    assert not verify(sound).findings


def test_keys_of_expired_messages_are_not_required(path):
    with filled(path, count=200) as store:
        store.clean(total_bytes=8_000)
    assert len(index_files(path)) < 3
    assert not verify(path).findings


def test_an_index_may_lag_while_the_store_is_in_use(path):
    with filled(path, count=30) as store:
        assert set(verify(path).counts) == {"NOT_CLOSED"}
        store.close(clean=False)
    assert set(verify(path).counts) == {"NOT_CLOSED"}


def test_a_writer_without_an_index_leaves_a_note_and_nothing_to_repair(path):
    config = replace(SMALL, key_index=False)
    filled(path, count=30, config=config).close()
    (finding,) = verify(path).findings
    assert (finding.code, finding.severity) == ("KEY_INDEX_BEHIND", Severity.NOTE)
    assert "reads all 30 messages" in finding.what
    assert not repair(path).actions


def test_an_item_without_a_key_is_reported_with_its_file(sound):
    name = damage_item(sound, 1, 3, at=2)
    found = {one.code: one.file for one in verify(sound).findings}
    assert found.keys() >= {"KEY_INDEX_GAPS", "KEY_INDEX_WRONG"}
    assert set(found.values()) == {name}


def test_items_of_the_last_record_are_checked(sound):
    name = damage_item(sound, 2, 200 - 2 * 79 - 1, at=2)
    found = {one.code: one.file for one in verify(sound).findings}
    assert found["KEY_INDEX_GAPS"] == found["KEY_INDEX_WRONG"] == name


def test_a_damaged_begin_offset_of_the_first_index_file_is_found_and_repaired(sound):
    """If the begin offset in the header were trusted, all items of the file would be skipped."""
    overwrite(index_files(sound)[0], b"\1", 18)
    assert "KEY_INDEX_DAMAGED" in verify(sound).counts
    repair(sound)
    assert not verify(sound).findings
