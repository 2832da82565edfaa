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


WITHOUT_PYSPARK = """
import json, sys
sys.modules["pyspark"] = None
from click.testing import CliRunner
from pyrocket.tools.cli import main
done = [CliRunner().invoke(main, line.split()) for line in sys.argv[1:]]
print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in done]))
"""


def test_without_pyspark_store_commands_work_and_others_name_the_install_command(path):
    filled(path, count=3).close()
    works = ("topic list", "message tail t", "group lag", "store info")
    commands = [
        *(f"{one} --path {path}" for one in works),
        "checkpoint show x",
        "checkpoint --json",
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK, *commands, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    *worked, shown, error, listed = json.loads(done.stdout)
    assert [(code, errors) for code, _, errors in worked] == [(0, "")] * len(works)
    assert (shown[0], error[0]) == (2, 2)
    for text in (shown[2], error[1]):
        assert "it needs pyspark" in text
        assert "Run: pip install '.[spark]'" in text
    assert json.loads(error[1])["error"]["remedy"]
    assert "it needs pyspark" in listed[1]
    assert "ModuleNotFoundError" not in listed[1]


def test_python_m_pyrocket_behaves_like_the_script():
    command = [sys.executable, "-m", "pyrocket", "doctor", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
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


def test_ctrl_c_while_modules_are_imported_exits_with_130(tmp_path):
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ['PYTHONPATH']}"}
    command = [sys.executable, "-m", "pyrocket", "topic", "list"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
