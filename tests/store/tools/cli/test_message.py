"""`pyrocket message`: tail, find and send, with text or JSON output and in pipes."""

import base64
import os
import signal
import subprocess
import sys
import time

import pytest
from pyrocket import Message, Store
from pyrocket.tools.cli.show import time_ms
from support.commands import document_on, run, run_on
from support.stores import SMALL, snapshot

EVIL = b"\x1b[2J\r\n\xff"


@pytest.fixture
def path(tmp_path):
    """Three messages in two queues of t, stored in the order a, b, c."""
    with Store.open(tmp_path / "store", create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        store.append(Message(topic="t", body=b"a", queue_id=1, keys=["k-1"]))
        store.append(Message(topic="t", body="bä".encode(), queue_id=0, tags="T"))
        named = {"keys": ["k-1", "k-2"], "properties": {"city": "Oslo"}}
        store.append(Message(topic="t", body=EVIL, queue_id=1, **named))
    return tmp_path / "store"


def bodies(path, *arguments, status=0):
    found = document_on(path, *arguments, status=status)["messages"]
    return [
        base64.b64decode(m["body"]) if m["bodyEncoding"] == "base64" else m["body"] for m in found
    ]


def test_tail_shows_the_newest_messages_of_all_queues_in_log_order(path):
    before = snapshot(path)
    assert bodies(path, "message", "tail", "t") == ["a", "bä", EVIL]
    assert bodies(path, "message", "tail", "t", "--count", 2) == ["bä", EVIL]
    assert bodies(path, "message", "tail", "t", "--queue", 1, "--count", 1) == [EVIL]
    assert document_on(path, "message", "tail", "t", "--queue", 2, status=2)["error"]
    assert snapshot(path) == before


def test_a_damaged_message_is_named_with_the_way_to_the_messages_after_it(path):
    (log,) = (path / "commitlog").iterdir()
    damaged = bytearray(log.read_bytes())
    damaged[88] ^= 1
    log.write_bytes(damaged)
    failed = run_on(path, "message", "tail", "t").stderr
    assert "[STORE_DAMAGED]: offset 0 of queue 1 of 't': checksum mismatch" in failed
    assert "pyrocket message show t --queue 1 --offset 1" in failed
    assert bodies(path, "message", "show", "t", "--queue", 1, "--offset", 1) == [EVIL]


@pytest.mark.parametrize("command", ["tail", "show", "find"])
def test_a_count_of_zero_is_rejected(path, command):
    arguments = ["--key", "k"] if command == "find" else []
    done = run_on(path, "message", command, "t", *arguments, "--count", 0)
    assert done.exit_code == 2
    assert "--count" in done.stderr


def test_tail_reads_the_messages_that_a_repair_truncated(path):
    (log,) = (path / "commitlog").iterdir()
    damaged = bytearray(log.read_bytes())
    damaged[88] ^= 1
    log.write_bytes(damaged)
    done = run("repair", path, "--cut", "--yes")
    assert "removes 2 complete messages" in done.stderr
    (cut,) = (path / "pyrocket").glob("cut-*")
    assert bodies(cut, "message", "tail", "t") == ["bä", EVIL]
    assert bodies(cut, "message", "tail", "t", "--queue", 1) == [EVIL]
    assert bodies(cut, "message", "tail", "u") == []
    document_on(log, "message", "tail", "t", status=2)


def test_tail_prints_one_escaped_line_for_each_message(path):
    first, second, third = run_on(path, "message", "tail", "t").stdout.splitlines()
    assert first.startswith("queue=1 offset=0 stored=20")
    assert first.endswith("keys=k-1  a")
    assert second.endswith("tags=T  bä")
    assert third.endswith(r"keys=k-1,k-2 city=Oslo  \x1b[2J\r\n\xff")


def test_a_long_body_is_shortened_in_text_and_complete_in_json(path):
    run_on(path, "message", "send", "t", "x" * 3000)
    line = run_on(path, "message", "tail", "t", "--count", 1).stdout
    assert line.endswith("x… (3,000 bytes)\n")
    assert len(line) < 1200
    assert bodies(path, "message", "tail", "t", "--count", 1) == ["x" * 3000]


@pytest.mark.parametrize("arguments", [[], ["--key", "k", "--id", "i"]])
def test_a_query_needs_either_key_or_id(path, arguments):
    assert (
        document_on(path, "message", "find", "t", *arguments, status=2)["error"]["code"] == "USAGE"
    )


def test_a_message_is_sent_with_all_its_fields(path):
    fields = ["--tags", "T", "--key", "k-8", "--key", "k-9", "--property", "city=A=B"]
    (sent,) = document_on(path, "message", "send", "t", "hi", "--queue", 1, *fields)["messages"]
    assert (sent["queueId"], sent["queueOffset"]) == (1, 2)
    (found,) = document_on(path, "message", "find", "t", "--id", sent["msgId"])["messages"]
    assert (found["body"], found["tags"], found["keys"]) == ("hi", "T", ["k-8", "k-9"])
    assert found["properties"] == {"city": "A=B"}


def test_each_line_of_standard_input_is_a_message_with_its_bytes(path):
    done = run_on(path, "message", "send", "t", "--queue", 0, answer=b"x\n\xff y\nlast")
    assert done.exit_code == 0
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["queue=0", f"offset={offset}"] for offset in (1, 2, 3)
    ]
    assert bodies(path, "message", "tail", "t", "--count", 3) == ["x", b"\xff y", "last"]


def test_a_file_is_sent_as_one_message(path, tmp_path):
    (tmp_path / "body").write_bytes(EVIL)
    run_on(path, "message", "send", "t", "--file", tmp_path / "body")
    assert bodies(path, "message", "tail", "t", "--count", 1) == [EVIL]
    missing = document_on(path, "message", "send", "t", "--file", tmp_path / "none", status=2)
    assert "none" in missing["error"]["message"]


def test_the_error_for_an_invalid_line_has_its_number_and_the_lines_before_are_sent(path):
    lines = b"fine\n" + os.urandom(5 << 20).replace(b"\n", b"") + b"\nnever"
    error = document_on(path, "message", "send", "t", answer=lines, status=2)["error"]
    assert error["message"].startswith("line 2: ")
    assert "All lines before it were sent" in error["message"]
    assert bodies(path, "message", "tail", "t", "--count", 1) == ["fine"]


def start(path, *arguments, **options):
    command = [sys.executable, "-m", "pyrocket", "message", *arguments, "--path", str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_a_closed_pipe_ends_the_command_silently(path):
    """The reader closes the pipe after the first line, as `| head -1` does."""
    with start(path, "send", "t", stdin=subprocess.PIPE) as sending:
        sending.stdin.write(b"one\n")
        sending.stdin.flush()
        assert sending.stdout.readline().startswith(b"queue=")
        sending.stdout.close()
        sending.stdin.write(b"two\nthree\nfour\n")
        sending.stdin.close()
        assert sending.stderr.read() == b""
    assert sending.returncode == 141
    assert bodies(path, "message", "tail", "t", "--count", 1) == ["two"]


def test_ctrl_c_keeps_sent_messages_and_closes_the_store(path):
    # Background processes of a script, and their children, ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sending = start(path, "send", "t", stdin=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with sending:
        sending.stdin.write(b"one\n")
        sending.stdin.flush()
        assert sending.stdout.readline().startswith(b"queue=")
        sending.send_signal(signal.SIGINT)
        assert b"Traceback" not in sending.stderr.read()
    assert sending.returncode == 130
    assert bodies(path, "message", "tail", "t", "--count", 1) == ["one"]
    assert not (path / "abort").exists()


def test_characters_that_the_output_cannot_encode_are_escaped(path):
    """This happens under cron, or in a terminal with a single-byte encoding."""
    run_on(path, "message", "send", "t", "東ä")
    settings = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    with start(path, "tail", "t", env=settings) as showing:
        shown, errors = showing.stdout.read(), showing.stderr.read()
    assert (showing.returncode, errors) == (0, b"")
    assert shown.endswith(b"  \\u6771\xe4\n")


def test_times_without_a_zone_are_in_utc_as_they_are_shown(path, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert time_ms("2026-01-31 12:00", int) == time_ms("2026-01-31T12:00:00Z", int)
        assert time_ms("2026-01-31T12:00:00+01:00", int) == 1769857200_000
    finally:
        monkeypatch.undo()
        time.tzset()
