"""The examples for systemd and containers in `store/BROKER.md` are correct."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support.broker_manual import PAGE
from support.commands import run

ROOT = Path(__file__).parents[1]


def example(kind):
    return re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_documented_unit(tmp_path):
    """The program in /opt is replaced by one that exists."""
    unit = tmp_path / "pyrocket.service"
    unit.write_text(example("ini").replace("/opt/pyrocket/bin/pyrocket", shutil.which("true")))
    command = ["systemd-analyze", "verify", "--man=no", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_options_in_the_examples_exist():
    (started,) = re.findall(r"^ExecStart=(.*)$", example("ini"), re.MULTILINE)
    lines = re.findall(r"^(?:ENTRYPOINT|CMD) \[(.*)\]$", example("dockerfile"), re.MULTILINE)
    contained = [word for line in lines for word in re.findall(r'"([^"]*)"', line)]
    for program, command, _, *given in (shlex.split(started), contained):
        assert (Path(program).name, command) == ("pyrocket", "broker")
        options = [word for word in given if word.startswith("-")]
        shown = run("broker", "start", "--help").stdout
        assert options
        assert all(re.search(rf"(^|\s){word}\b", shown) for word in options)


def test_the_extra_in_the_container_file_exists():
    (installed,) = re.findall(r"'/src\[(\w+)\]'", example("dockerfile"))
    assert f'"{installed}"' in (ROOT / "setup.py").read_text()
