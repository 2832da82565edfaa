"""Errors for a path that is not a store describe the path to readers and writers."""

import re

import pytest
from pyrocket import Store
from pyrocket.errors import StoreNotFoundError

PLACES = [
    # files in the folder, their description, the remedy
    (["part-0.parquet", "_SUCCESS"], "Parquet files", "parquet"),
    (["_SUCCESS", "part-0.csv"], "files written by Spark", "directory of its own"),
    (["day=1/part-0.parquet", "day=2/part-1.parquet"], "partitions", "directory of its own"),
    (["_delta_log/0.json", "part-0.parquet"], "Delta table", "delta"),
    (["offsets/0", "commits/0", "metadata", "state/0"], "checkpoint of a stream", "directory of"),
    (["thesis.tex"], r"other files, such as 'thesis\.tex'", "directory of its own"),
    ([".hidden"], r"other files, such as '\.hidden'", "directory of its own"),
]


def lay(root, names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


def refused(path, **how):
    with pytest.raises(StoreNotFoundError) as caught:
        Store.open(path, **how)
    return caught.value


@pytest.mark.parametrize("how", [{"read_only": True}, {}, {"create": True}])
@pytest.mark.parametrize(("names", "what", "remedy"), PLACES)
def test_a_folder_with_other_files_is_described(tmp_path, names, what, remedy, how):
    lay(tmp_path, names)
    before = sorted(tmp_path.rglob("*"))
    error = refused(tmp_path, **how)
    assert error.code == "STORE_DIRECTORY_NOT_EMPTY"
    assert re.search(what, error.message), error.message
    assert remedy in error.remedy
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("how", [{"read_only": True}, {}, {"create": True}])
def test_the_error_for_a_path_inside_a_store_contains_the_store(tmp_path, how):
    Store.open(tmp_path / "s", create=True).close()
    for inside in ("commitlog", "pyrocket", "config", "commitlog/0", "new", "a/b"):
        error = refused(tmp_path / "s" / inside, **how)
        assert error.code == "STORE_PATH"
        assert f"inside the store {tmp_path / 's'}" in error.message
        assert f"Use {tmp_path / 's'}," in error.remedy


@pytest.mark.parametrize("how", [{"read_only": True}, {}, {"create": True}])
def test_the_error_for_the_parent_folder_of_a_store_contains_the_store(tmp_path, how):
    Store.open(tmp_path / "s", create=True).close()
    error = refused(tmp_path, **how)
    assert error.code == "STORE_DIRECTORY_NOT_EMPTY"
    assert error.remedy == f"Use {tmp_path / 's'}."


def test_an_unknown_folder_is_rejected_as_a_wrong_path(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "missing"):
        error = refused(path)
        assert error.code == "STORE_NOT_FOUND"
        assert "Check the path" in error.remedy


def test_only_a_part_of_a_folder_with_very_many_files_is_read(tmp_path, monkeypatch):
    lay(tmp_path, [f"{number}.csv" for number in range(50)])
    monkeypatch.setattr("pyrocket.disk.root_checks._MAX_NAMES", 10)
    assert ".csv" in refused(tmp_path).message
