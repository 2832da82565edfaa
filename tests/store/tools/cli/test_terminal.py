"""The output of commands to files, pipes and terminals."""

import re

import pytest
from support.commands import run
from support.stores import filled, overwrite, queue_files, reboot


@pytest.fixture
def damaged(path):
    filled(path, count=60).close()
    reboot(path)
    overwrite(queue_files(path)[1], bytes(20), 40)
    return str(path)


def test_a_table_is_as_wide_as_the_terminal(damaged, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    *table, _ = run("verify", damaged).stdout.splitlines()
    assert len(table) > 2
    assert "\x1b" in table[0]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_are_completed_in_each_shell(shell):
    assert "_PYROCKET_COMPLETE" in run("completion", shell).stdout
    words = {"COMP_WORDS": "pyrocket topic ", "COMP_CWORD": "2" if shell != "fish" else ""}
    done = run(_PYROCKET_COMPLETE=f"{shell}_complete", **words)
    assert {"alter", "create", "delete", "list", "show"} <= set(re.findall(r"\w+", done.stdout))
    assert run("completion", "csh").exit_code == 2
