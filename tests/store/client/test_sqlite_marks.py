"""Marks in a SQLite file: concurrent use, and files that cannot be used."""

import os
import sqlite3
import threading

import pytest
from pyrocket.client.deduplication.listener import Deduplicated
from pyrocket.client.deduplication.sqlite import VERSION, SqliteMarks
from pyrocket.client.results import ConsumeResult
from pyrocket.errors import PyrocketError
from support.forked import Forked, run_code
from support.payments import payment

_CHILD = """
import sys
from pyrocket.client.deduplication.sqlite import SqliteMarks
marks = SqliteMarks(sys.argv[1], group="billing")
print(sum(marks.begin([str(n)], sys.argv[2], 0, 1)[0].name == "BEGUN" for n in range(300)))
"""


def test_concurrent_threads_consume_each_key_once(tmp_path):
    received, keys = [], [f"o-{number}" for number in range(100)]

    def shop(messages):
        received.extend(message.keys[0] for message in messages)
        return ConsumeResult.SUCCESS

    def consume(listener):
        for key in keys:
            while listener([payment(key)]) != ConsumeResult.SUCCESS:
                pass

    with (
        SqliteMarks(tmp_path / "marks.db", group="billing") as one,
        SqliteMarks(tmp_path / "marks.db", group="billing") as other,
    ):
        listeners = [Deduplicated(shop, store=store) for store in (one, other)] * 2
        threads = [threading.Thread(target=consume, args=(each,)) for each in listeners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(received) == sorted(keys)


def test_concurrent_processes_begin_each_key_once(tmp_path):
    children = [Forked(run_code, _CHILD, str(tmp_path / "marks.db"), name) for name in "abc"]
    assert sum(int(child.communicate(timeout=60)[0]) for child in children) == 300


@pytest.mark.parametrize(
    ("path", "code"),
    [
        *((path, "DEDUPLICATION_PATH") for path in (":memory:", "", "a\0b", None, 7, b"marks.db")),
        ("missing/marks.db", "DEDUPLICATION_FAILED"),
        (".", "DEDUPLICATION_FAILED"),
    ],
)
def test_a_path_that_cannot_hold_marks_is_an_error(tmp_path, monkeypatch, path, code):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PyrocketError) as error:
        SqliteMarks(path, group="billing")
    assert error.value.code == code


def test_a_file_that_is_not_a_database_is_an_error_and_is_not_changed(tmp_path):
    path = tmp_path / "marks.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(PyrocketError, match="not a database") as error:
        SqliteMarks(path, group="billing")
    assert error.value.code == "DEDUPLICATION_FAILED"
    assert path.read_bytes() == b"not a database" * 100


def test_a_file_of_a_later_release_is_an_error(tmp_path):
    connection = sqlite3.connect(tmp_path / "marks.db")
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(PyrocketError) as error:
        SqliteMarks(tmp_path / "marks.db", group="billing")
    assert error.value.code == "STORE_NEWER"


def test_a_closed_store_is_an_error(tmp_path):
    with SqliteMarks(tmp_path / "marks.db", group="billing") as marks:
        pass
    with pytest.raises(PyrocketError, match="closed") as error:
        marks.begin(["a"], "me", 0, 1)
    assert error.value.code == "DEDUPLICATION_FAILED"


def test_a_forked_process_must_open_the_file_again(tmp_path, monkeypatch):
    with SqliteMarks(tmp_path / "marks.db", group="billing") as marks:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(PyrocketError) as error:
            marks.begin(["a"], "me", 0, 1)
        assert error.value.code == "CLIENT_FORKED"
