import json
import os
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pyrocket.tools import cli
from pyrocket.tools.cli import GROUP, LazyCommands, find_commands, main
from support.stores import filled

BROKEN = EntryPoint("broken", "not_there:command", GROUP)


def test_doctor_is_available_in_an_uninstalled_checkout(monkeypatch):
    monkeypatch.setattr(cli, "entry_points", lambda group: [])
    assert find_commands()["doctor"].load().name == "doctor"


def test_doctor_is_missing_without_the_connector(monkeypatch):
    monkeypatch.setattr(cli, "entry_points", lambda group: [])
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None)
    assert find_commands() == {}


def test_command_that_cannot_be_imported_is_reported_and_others_work(monkeypatch):
    monkeypatch.setattr(cli, "entry_points", lambda group: [BROKEN])
    listed = CliRunner().invoke(main, ["--help"])
    assert listed.exit_code == 0
    assert "doctor" in listed.output
    done = CliRunner().invoke(main, ["broken"])
    assert done.exit_code == 2
    assert "not_there" in done.output
    assert (
        "not_there"
        in json.loads(CliRunner().invoke(main, ["broken", "--json"]).stdout)["error"]["message"]
    )


WITHOUT_PYSPARK = (
    "import sys; sys.modules['pyspark'] = None; from pyrocket.tools.cli import main; main()"
)


@pytest.mark.parametrize("arguments", [["show", "x"], ["--json"]])
def test_a_command_that_needs_a_missing_pyspark_names_the_install_command(arguments):
    done = run_without_pyspark("checkpoint", *arguments)
    assert done.returncode == 2
    shown = done.stdout or done.stderr
    assert "it needs pyspark" in shown
    assert "Run: pip install '.[spark]'" in shown
    assert arguments != ["--json"] or json.loads(done.stdout)["error"]["remedy"]


def test_help_names_the_missing_package_of_a_command():
    listed = run_without_pyspark("--help").stdout
    assert "it needs pyspark" in listed
    assert "ModuleNotFoundError" not in listed


@pytest.mark.parametrize("command", ["topic list", "message tail t", "group lag", "store info"])
def test_store_commands_work_without_pyspark(path, command):
    filled(path, count=3).close()
    done = run_without_pyspark(*command.split(), "--path", str(path))
    assert (done.returncode, done.stderr) == (0, "")


def run_without_pyspark(*arguments):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", [["pyrocket"], ["pyrocket", "doctor"]])
def test_python_m_pyrocket_behaves_like_the_script(module):
    done = subprocess.run(
        [sys.executable, "-m", *module, "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage: pyrocket" in done.stdout


def test_listing_the_commands_does_not_import_them():
    code = (
        "import click, sys; from pyrocket.tools.cli import main;"
        "main.list_commands(click.Context(main));"
        "sys.exit('pyspark_pyrocket' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def interruptible():
    """Enable Ctrl-C, which background processes of a script and their children ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_exits_with_130(interruptible):
    """Ctrl-C during the work and after a question; an empty answer means no."""

    @click.command()
    @click.option("--ask", is_flag=True)
    @click.option("--json", is_flag=True)
    def slow(ask, json):
        if ask:
            click.confirm("Do it?", abort=True)
        os.kill(os.getpid(), signal.SIGINT)

    group = LazyCommands("group", commands={"slow": slow})
    assert CliRunner().invoke(group, ["slow"]).exit_code == 130
    shown = CliRunner().invoke(group, ["slow", "--json"])
    assert (shown.exit_code, shown.stderr.strip()) == (130, "")
    assert json.loads(shown.stdout)["error"]["code"] == "INTERRUPTED"
    assert CliRunner().invoke(group, ["slow", "--ask"], input="y\n").exit_code == 130
    assert CliRunner().invoke(group, ["slow", "--ask"], input="").exit_code == 1


def test_ctrl_c_at_a_prompt_exits_with_130():
    @click.command()
    def ask():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise click.Abort from None  # click also raises Abort in this case.

    assert (
        CliRunner().invoke(LazyCommands("group", commands={"ask": ask}), ["ask"]).exit_code == 130
    )


def test_version_option_shows_the_installed_version(monkeypatch):
    shown = CliRunner().invoke(main, ["--version"])
    assert (shown.exit_code, shown.stdout) == (0, f"pyrocket {version('pyspark-pyrocket')}\n")


def test_version_of_an_uninstalled_checkout_shows_its_directory(monkeypatch):
    def nothing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(cli, "version", nothing)
    shown = CliRunner().invoke(main, ["--version"])
    assert (shown.exit_code, str(Path(cli.__file__).parents[1]) in shown.stdout) == (0, True)


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        (["verfy"], "'verify'"),
        (["topics"], "'topic'"),
        (["topic", "lst"], "'list'"),
        (["message", "snd"], "'send'"),
        (["store", "inof"], "'info'"),
        (["checkpoint", "shwo"], "'show'"),
    ],
)
def test_error_for_mistyped_command_suggests_the_nearest(mistyped, meant):
    done = CliRunner().invoke(main, mistyped)
    assert done.exit_code == 2
    assert f"Did you mean {meant}" in done.stderr
    shown = json.loads(CliRunner().invoke(main, [*mistyped, "--json"]).stdout)
    assert f"Did you mean {meant}" in shown["error"]["message"]


def test_error_for_unknown_command_lists_all_commands():
    assert "topic, verify" in CliRunner().invoke(main, ["qqqqq"]).stderr


def test_help_never_truncates_summaries(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    for arguments in ([], ["store"], ["topic"], ["message"], ["group"], ["checkpoint"]):
        shown = CliRunner().invoke(main, [*arguments, "--help"]).stdout
        _, commands = shown.split("Commands:")
        assert "..." not in commands
        assert "…" not in commands
        assert commands.rstrip().endswith(".")
