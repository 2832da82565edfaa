"""Folders in place of files, and files in place of folders, are reported with a remedy."""

import shutil

import pytest
from click.testing import CliRunner
from pyrocket import Message, Store
from pyrocket.errors import StoreDamagedError
from pyrocket.tools.cli import main
from support.stores import bodies, filled, log_files, queue_files

FOLDERS = ["commitlog", "config", "consumequeue", "index", "pyrocket"]
FILES = ["config/topics.json", "pyrocket/store.json", "pyrocket/topics.json", "pyrocket/state"]


@pytest.fixture
def sound(path):
    with filled(path) as store:
        store.append(Message(topic="t", body=b"x", keys="k"))
        store.groups.commit("g", "t", {0: 3})
    return path


def swap(place):
    """Replace a folder with a file, or a file with a folder."""
    if place.is_dir():
        shutil.rmtree(place)
        place.write_text("mine")
    else:
        place.with_name(f"{place.name}.bak").unlink(missing_ok=True)
        place.unlink()
        place.mkdir()


def use(path, *, read_only):
    with Store.open(path, read_only=read_only) as store:
        bodies(store)
        list(store.lookup.query("t", "k"))
        store.groups.offsets()
        if not read_only:
            store.append(Message(topic="t", body=b"x", keys="k"))


@pytest.mark.parametrize("name", FOLDERS + FILES)
def test_folders_and_files_in_each_others_place_are_reported_to_readers_and_writers(sound, name):
    swap(sound / name)
    for read_only in (True, False):
        with pytest.raises(StoreDamagedError) as failure:
            use(sound, read_only=read_only)
        assert f"{sound / name} is a f" in str(failure.value)
        assert failure.value.remedy


@pytest.mark.parametrize("files", [log_files, queue_files])
def test_a_folder_among_the_files_of_a_queue_is_reported(sound, files):
    place = files(sound)[1]
    swap(place)
    with (
        pytest.raises(StoreDamagedError, match=f"{place} is a folder; a store has a file there"),
        Store.open(sound, read_only=True) as store,
    ):
        bodies(store)


@pytest.mark.parametrize("name", [*FOLDERS, *FILES, "lock", "pyrocket/mutex", "checkpoint"])
def test_verify_reports_folders_and_files_in_each_others_place_and_repair_reports_or_fixes_them(
    sound, name
):
    swap(sound / name)
    for options, codes in (["verify"], [1]), (["repair", "--yes"], [0, 1, 2]):
        done = CliRunner().invoke(main, [*options, str(sound)])
        assert "OS_ERROR" not in done.output
        assert "Errno" not in done.output
        assert done.exit_code in codes
        assert done.exit_code == 0 or name in done.output.replace("\n", "")
