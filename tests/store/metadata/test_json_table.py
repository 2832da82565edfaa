"""RocketMQ's JSON files: the backup of a corrupt file is read, and no unknown field is lost."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats import fastjson
from pyrocket.metadata.json_table import JsonTable

GOOD = '{"dataVersion":{"counter":3,"stateVersion":9,"timestamp":1},"t":{"a":1},"new":[5]}'
BROKEN = ["{", "[]", "null", "7", '"t"', '{"t":5}', '{"t":{"a":"x"}}', '{"dataVersion":[]}', "\x00"]


def parse(content):
    return {name: int(value) for name, value in content.get("t", {}).items()}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "config").mkdir()
    return tmp_path


@pytest.fixture
def table(root):
    return JsonTable(Layout(root), "x", parse)


@pytest.fixture
def main(root):
    return root / "config/x.json"


@pytest.fixture
def backup(root):
    return root / "config/x.json.bak"


def add(name, value):
    def edit(content):
        content.setdefault("t", {})[name] = value
        return True

    return edit


def test_without_files_the_table_is_empty(table, caplog):
    assert table.read() == {}
    assert not caplog.records


@pytest.mark.parametrize("empty", ["main", "backup", "both"])
def test_empty_files_are_read_as_an_empty_table(table, main, backup, empty):
    for name, path in (("main", main), ("backup", backup)):
        if empty in (name, "both"):
            path.write_text("")
    assert table.read() == {}


@pytest.mark.parametrize("text", [None, "", *BROKEN])
def test_the_backup_is_read_instead_of_a_corrupt_file_with_a_warning(
    table, main, backup, text, caplog
):
    if text is not None:
        main.write_text(text)
    backup.write_text(GOOD)
    with caplog.at_level(logging.WARNING, "pyrocket"):
        assert table.read() == {"a": 1}
        assert table.read() == {"a": 1}
    (record,) = caplog.records
    assert str(main) in record.getMessage()
    assert "x.json.bak" in record.getMessage()
    assert (main.read_text() if main.exists() else None) == text, "reading changes nothing"


def test_a_corrupt_backup_without_a_table_is_reported(table, backup):
    backup.write_text("{")
    with pytest.raises(StoreDamagedError, match="is missing, and its backup cannot be parsed"):
        table.read()


def test_invalid_utf8_is_damage(table, main, backup):
    main.write_bytes(b'{"t":{"\xff":1}}')
    backup.write_text(GOOD)
    assert table.read() == {"a": 1}


def test_a_change_preserves_unknown_fields_and_the_old_file(table, main, backup):
    main.write_text(GOOD)
    table.change(add("b", 2))
    assert backup.read_text() == GOOD
    assert fastjson.loads(main.read_text()) == {
        "dataVersion": {"counter": 3, "stateVersion": 9, "timestamp": 1},
        "new": [5],
        "t": {"a": 1, "b": 2},
    }


def test_the_data_version_is_incremented_on_request(table, main):
    main.write_text(GOOD)
    table.change(add("b", 2), changed_at=77)
    version = fastjson.loads(main.read_text())["dataVersion"]
    assert version == {"counter": 4, "stateVersion": 9, "timestamp": 77}


def test_a_new_table_starts_with_version_one_and_no_backup(table, main, backup):
    table.change(add("b", 2), changed_at=77)
    assert main.read_text() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"timestamp":77\n\t},\n\t"t":{\n\t\t"b":2\n\t}\n}'
    )
    assert not backup.exists()


def test_an_edit_without_effect_writes_nothing(table, main, backup):
    main.write_text(GOOD)
    table.change(lambda content: False, changed_at=77)
    assert main.read_text() == GOOD
    assert not backup.exists()


def test_a_corrupt_file_never_replaces_its_valid_backup(table, main, backup):
    main.write_text('{"half')
    backup.write_text(GOOD)
    table.change(add("b", 2))
    assert backup.read_text() == GOOD
    assert table.read() == {"a": 1, "b": 2}


def test_lone_surrogates_become_question_marks_as_in_java(table, main):
    main.write_text(r'{"t":{},"new":"\ud800"}')
    table.change(add("b", 2))
    assert fastjson.loads(main.read_text())["new"] == "?"


def test_a_change_that_fails_at_any_step_leaves_the_old_or_the_new_table(root, main, monkeypatch):
    """In each run, one operation of a change fails, as on a full disk or after a kill."""
    table = JsonTable(Layout(root), "x", parse)
    table.change(add("n", 0))
    table.change(add("n", 1))
    for failing in range(100):
        left = [failing]
        with monkeypatch.context() as patch:
            for name in ("write_at", "sync", "rename", "sync_directory"):
                patch.setattr(io, name, _failing(getattr(io, name), left))
            try:
                table.change(add("n", 2 + failing))
            except OSError:
                assert table.read() in ({"n": 1 + failing}, {"n": 2 + failing})
                table.change(add("n", 2 + failing))
            else:
                break
        assert table.read() == {"n": 2 + failing}
        assert not list((root / "pyrocket/tmp").iterdir())
    assert failing == 8, "a draft and its place, for the backup and for the table"


def _failing(real, left):
    def operation(*arguments):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    return operation


@given(st.text(alphabet='{}[]":,0159-.eE \\\ntaN', max_size=40))
def test_any_text_is_a_valid_table_or_reported_as_damage(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("s")
    (root / "config").mkdir()
    (root / "config/x.json").write_text(text)
    table = JsonTable(Layout(root), "x", parse)
    try:
        known = table.read()
    except StoreDamagedError:
        return
    table.change(add("z", 1), changed_at=1)
    assert table.read() == {**known, "z": 1}
