"""`pyrocket verify`, `repair`, `snapshot` and `store clean`: exit codes, JSON and text output."""

import errno
import io
import os
import shutil
import subprocess
import sys

import pytest
from pyrocket import Store
from pyrocket.disk import io as disk_io
from pyrocket.tools.cli import main
from support.commands import document, run
from support.stores import (
    SMALL,
    batch,
    filled,
    log_files,
    message,
    numbered,
    overwrite,
    queue_files,
    reboot,
    snapshot,
)

ERASED = "\x1b[2K"
"""The escape sequence that clears a terminal line."""

COMMANDS = ["repair", "snapshot", "verify"]


@pytest.fixture
def sound(path):
    filled(path, count=60).close()
    reboot(path)
    return path


@pytest.fixture
def damaged(sound):
    overwrite(queue_files(sound)[1], bytes(20), 40)
    return sound


def test_a_sound_store_is_verified_in_one_line(sound):
    before = snapshot(sound)
    done = run("verify", sound)
    assert done.exit_code == 0
    assert "60 messages" in done.output
    assert "all is well" in done.output
    found = document("verify", sound)
    assert (found["ok"], found["messages"], found["findings"]) == (True, 60, [])
    assert snapshot(sound) == before


def test_findings_have_code_place_and_remedy(damaged):
    done = run("verify", damaged)
    assert done.exit_code == 1
    assert "QUEUE_ENTRY_MISSING" in done.output
    assert "pyrocket repair" in done.output
    (finding,) = document("verify", damaged, status=1)["findings"]
    assert finding["code"] == "QUEUE_ENTRY_MISSING"
    assert finding["severity"] == "error"
    assert finding["file"] == "consumequeue/t/0/00000000000000000200"
    assert finding["position"] == 40
    assert finding["fix"].startswith("pyrocket repair")


def test_repair_shows_its_actions_and_asks(damaged):
    refused = run("repair", damaged, answer="n\n")
    assert refused.exit_code == 1
    assert "rebuild the queue t/0" in refused.stderr
    assert run("verify", damaged).exit_code == 1
    done = run("repair", damaged, answer="y\n")
    assert done.exit_code == 0
    assert run("verify", damaged).exit_code == 0


def test_repair_with_json_does_not_prompt_and_needs_yes(damaged):
    planned = document("repair", damaged, "--dry-run", status=1)
    assert (planned["done"], len(planned["actions"])) == (False, 1)
    assert not document("repair", damaged, status=1)["done"]
    done = document("repair", damaged, "--yes")
    assert (done["done"], done["after"]["ok"]) == (True, True)
    assert document("repair", damaged, "--yes")["actions"] == []


def test_options_set_index_sizes_that_cannot_be_determined(path):
    """The files show their sizes only if items and slots have RocketMQ's ratio."""
    config = SMALL.with_sizes(index_slots=20, index_items=100)
    with Store.open(path, create=True, config=config) as store:
        store.append(message(keys=["k"]))
    shutil.rmtree(path / "pyrocket")
    given = ["--index-slots", 20, "--index-items", 100]
    assert list(document("verify", path, status=1)["counts"]) == ["INDEX_GEOMETRY"]
    done = run("store", "clean", "--path", path, "--hours", 1)
    assert done.exit_code == 2
    assert "--index-slots" in done.stderr
    assert document("verify", path, *given)["ok"]
    assert not document("repair", path, "--yes", *given)["after"]["findings"]
    assert run("store", "clean", "--path", path, "--hours", 1).exit_code == 0
    assert document("verify", path)["findings"] == []


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_the_clean_command_reports_kept_files_with_the_reason(sound, dry_run):
    with Store.open(sound) as store:
        store.append(message(b"later", delay_level=18))
        held = int(log_files(sound)[-1].name)
        store.append_batch(batch(numbered(60), 0), topic="t")
    before = log_files(sound)
    limit = ["--total-bytes", 0, *dry_run]
    output = document("store", "clean", "--path", sound, *limit, *([] if dry_run else ["--yes"]))
    stays = [each.name for each in before if int(each.name) >= held][:-1]
    assert [one["name"] for one in output["keptFiles"]] == stays
    assert {one["heldBy"] for one in output["keptFiles"]} == {
        "delayed messages that are still to be delivered"
    }
    assert output["keptBytes"] == 4096 * len(stays)
    assert len(output["logFiles"]) == len([each for each in before if int(each.name) < held])
    assert output["logStart"] == held
    there = [each.name for each in log_files(sound)]
    assert there == ([each.name for each in before] if dry_run else [*stays, there[-1]])
    text = run("store", "clean", "--path", sound, *limit).output
    kept = "would be kept" if dry_run else "kept"
    assert all(f"commitlog/{name} {kept} (held by delayed messages" in text for name in stays)
    assert f"The log {'would begin' if dry_run else 'begins'} at {held}." in text
    assert bool(dry_run) == (" deleted (" in text), "only the first cleaning deletes files"


def test_the_snapshot_command_copies_a_store_to_a_missing_directory(sound, tmp_path):
    made = document("snapshot", sound, tmp_path / "copy")
    assert made["linkedFiles"] > 0
    assert run("verify", tmp_path / "copy").exit_code == 0
    again = run("snapshot", sound, tmp_path / "copy")
    assert again.exit_code == 2
    assert "SNAPSHOT_TARGET" in again.stderr
    other = run("snapshot", sound, tmp_path / "other", "--read-only")
    assert other.exit_code == 0
    assert "files linked" in other.output


def test_the_reason_why_files_were_not_linked_is_a_warning(sound, tmp_path, monkeypatch):
    def refuse(one, other):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(disk_io, "link", refuse)
    done = run("snapshot", sound, tmp_path / "copy")
    assert done.exit_code == 0
    assert "0 files linked" in done.stdout
    assert os.strerror(errno.EXDEV) in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_errors_exit_with_2_and_a_remedy(command, tmp_path):
    more = [tmp_path / "copy"] if command == "snapshot" else []
    done = run(command, tmp_path / "nothing", *more)
    assert done.exit_code == 2
    assert "Error [STORE_NOT_FOUND]" in done.stderr
    assert "Check the path" in done.stderr
    error = document(command, tmp_path / "nothing", *more, status=2)["error"]
    assert error["code"] == "STORE_NOT_FOUND"
    assert error["message"]
    assert error["remedy"]


def test_a_file_system_error_is_reported(sound, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pyrocket.tools.verify.verify.verify", refuse)
    assert document("verify", sound, status=2)["error"]["code"] == "OS_ERROR"


WRONG = ["verify", "repair x --what", "verify x --index-slots 5"]


@pytest.mark.parametrize("arguments", [each.split() for each in WRONG], ids=WRONG)
def test_wrong_usage_exits_with_two(arguments):
    done = run(*arguments)
    assert done.exit_code == 2
    assert "Usage" in done.stderr
    error = document(*arguments, status=2)["error"]
    assert (error["code"], bool(error["message"])) == ("USAGE", True)
    assert error["remedy"] == f"See `pyrocket {arguments[0]} --help`."


def test_a_store_in_use_is_verified_but_not_repaired(sound):
    with Store.open(sound):
        assert run("verify", sound).exit_code == 0
        assert "STORE_IN_USE" in run("repair", sound, "--yes").stderr


def test_help_of_commands_does_not_import_rich():
    code = (
        "import sys; from pyrocket.tools.cli import main\n"
        "for command in sys.argv[1:]:\n"
        "    try:\n        main([command, '--help'])\n"
        "    except SystemExit as done:\n        assert not done.code\n"
        "    assert 'rich' not in sys.modules, command\n"
    )
    arguments = [sys.executable, "-c", code, *COMMANDS]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.count("DIRECTORY") >= len(COMMANDS)


def test_progress_is_shown_only_on_a_terminal(sound, monkeypatch):
    from pyrocket.tools.cli import frame

    with frame.progress("verify", silent=False) as bar:
        assert bar is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with frame.progress("verify", silent=True) as bar:
        assert bar is None
    with frame.progress("verify", silent=False) as bar:
        bar(1, 2, "commitlog/00000000000000004096")


@pytest.fixture
def terminal(monkeypatch):
    """Run a command with a terminal as standard error; return its status and its output."""

    def run_there(*arguments, answer=""):
        shown = Terminal()
        monkeypatch.setattr(sys, "stderr", shown)
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        with pytest.raises(SystemExit) as done:
            main([str(each) for each in arguments], standalone_mode=False)
        return done.value.code, shown.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    return run_there


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("command", "last"),
    [("repair", "commitlog/0000"), ("snapshot", "consumequeue/t/0/0000"), ("verify", "commitlog/")],
)
def test_a_long_command_shows_its_progress(command, last, sound, tmp_path, terminal):
    more = [tmp_path / "copy"] if command == "snapshot" else []
    status, shown = terminal(command, sound, *more)
    assert status == 0
    assert f"{command} {last}" in shown
    assert shown.endswith(ERASED), "the bar is cleared"
    status, shown = terminal(command, sound, *([tmp_path / "json"] if more else []), "--json")
    assert (status, shown) == (0, "")


def test_the_progress_bar_is_cleared_for_a_question(damaged, terminal):
    status, shown = terminal("repair", damaged, answer="y\n")
    assert status == 0
    before, question = shown.split("To do:")
    question, after = question.split("Do it?")
    assert "repair commitlog/" in before
    assert before.endswith(ERASED)
    assert "repair" not in question.replace("rebuild the queue", "")
    assert "\x1b" not in question
    assert "repair commitlog/" in after
