"""`pyrocket checkpoint`: showing a checkpoint."""

import json
import os

import pytest
from pyrocket import Store
from support.spark_checkpoints import SETTINGS, reset, run, run_json


def test_a_checkpoint_is_shown_before_and_after_a_reset(files):
    """`test_progress_outside` checks that Spark continues from the new offsets."""
    shown = run("show", files.path)
    assert "query q-1 in " in shown
    assert "micro-batch 1  2023-11-14T22:13:20.000Z  committed  2 messages" in shown
    assert "t      0      2\n" in shown
    reset(files, "--to", "earliest", "--yes")
    assert "starting with micro-batch 2, which reads nothing" in run("show", files.path)


def test_the_offset_in_a_checkpoint_is_shown_by_queue(files):
    found = run_json("show", files.path)
    assert found["queryId"] == "q-1"
    assert [(b["batch"], b["committed"]) for b in found["batches"]] == [(0, True), (1, True)]
    (source,) = found["batches"][1]["sources"]
    assert source["offsets"] == {"t": {"broker-a": {"0": 2, "1": 2}}}
    with Store.open(files.box.path, read_only=True) as store:
        mark = store.history.mark({"t": {0: 2, 1: 2}})
        identity = {"epoch": 0, "store": store.uuid, "mark": source["brokers"]["broker-a"]["mark"]}
    assert source["brokers"] == {"broker-a": identity}
    assert identity["mark"]["logOffset"] == mark.log_offset
    assert (found["damaged"], found["foreign"]) == ([], [])


def test_offsets_in_a_checkpoint_are_readable_and_versioned(files):
    offset = files.offset(1)
    assert offset["version"] == 2
    assert offset["offsets"] == {"t": {"broker-a": {"0": 2, "1": 2}}}
    (files.path / "offsets/1").write_text(
        "\n".join(["v1", SETTINGS, json.dumps(offset | {"version": 9})])
    )
    (files.path / "offsets/.1.crc").unlink()
    (damage,) = run_json("show", files.path, status=1)["damaged"]
    assert damage["file"] == "offsets/1"
    assert "version 9" in damage["reason"]


def test_with_the_store_the_number_of_unread_messages_is_shown(files):
    files.box.send("e", queue=0)
    shown = run("show", files.path, "--path", files.box.path)
    assert "t      0      2            0      3    1\n" in shown


def test_planned_and_committed_micro_batches_are_distinguished(files):
    files.box.send("e")
    files.plan()
    shown = run("show", files.path)
    assert "planned, not committed  1 message" in shown
    assert "after micro-batch 2, which Spark runs again after a restart" in shown


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("offsets/1", b"", "starts with nothing"),
        ("offsets/1", b"v7\n{}\n{}", "starts with 'v7'"),
        ("offsets/1", b"v1\n{}", "no settings and offsets"),
        ("offsets/1", b"v1\nnonsense\n{}", "no settings and offsets"),
        ("offsets/1", b"\xff\xfe", "cannot be read"),
        ("commits/1", b"", "starts with nothing"),
        ("commits/9", b"v1\n{}", "no offsets/9"),
        ("offsets/.1.crc", b"crc\0\0\0\2\0....", "checksums in .1.crc are wrong"),
        ("metadata", b"{", "cannot be read"),
    ],
)
def test_a_corrupt_file_is_reported_with_the_reason(files, name, content, reason):
    crc = files.path / f"{os.path.dirname(name)}/.{os.path.basename(name)}.crc"
    crc.unlink(missing_ok=True)
    (files.path / name).write_bytes(content)
    damaged = run_json("show", files.path, status=1)["damaged"]
    assert [d["file"] for d in damaged] == [name.replace(".1.crc", "1")]
    assert reason.replace("no offsets/9", "There is no offsets/9") in damaged[0]["reason"]


def test_commits_after_a_corrupt_one_are_shown(files):
    (files.path / "commits/.0.crc").unlink(missing_ok=True)
    (files.path / "commits/0").write_bytes(b"")
    (files.path / "commits/9").write_bytes(b"v1\n{}")
    damaged = run_json("show", files.path, status=1)["damaged"]
    assert [d["file"] for d in damaged] == ["commits/0", "commits/9"]


def test_files_that_spark_does_not_write_are_reported(files):
    (files.path / "offsets/1.bak").touch()
    (files.path / "notes.txt").touch()
    assert run_json("show", files.path)["foreign"] == ["notes.txt", "offsets/1.bak"]


def test_a_missing_and_a_remote_checkpoint_have_different_error_codes(tmp_path):
    assert run_json("show", tmp_path, status=2)["error"]["code"] == "CHECKPOINT_NOT_FOUND"
    remote = run_json("show", "s3://bucket/checkpoint", status=2)["error"]
    assert remote["code"] == "CHECKPOINT_REMOTE"
    assert run_json("show", f"file:{tmp_path}", status=2)["error"]["code"] == "CHECKPOINT_NOT_FOUND"
