"""`configure()` sets the interpreter and the Java that Spark uses, unless they are set."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pyspark_pyrocket
import pytest
from pyrocket.errors import UnsupportedError
from pyspark_pyrocket import configure
from pyspark_pyrocket.tools import interpreters
from pyspark_pyrocket.tools.java import find_java
from support.machines import ROOT, executable, fake_java, pass_for

JOB = Path(__file__).with_name("unactivated_job.py")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A process before its first session: Java 21, another python3 on PATH, no variable set."""
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME")
    for name in (*names, "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        # Set first, so that changes by `configure` are undone even for variables that were not set.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    java = fake_java(tmp_path / "java", 21)
    executable(tmp_path / "bin" / "python3", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{java.parent}")
    monkeypatch.setattr(interpreters, "_jvm_runs", lambda: False)
    return tmp_path


@pytest.fixture
def started(machine, monkeypatch):
    monkeypatch.setattr(interpreters, "_jvm_runs", lambda: True)
    return machine


def test_configure_sets_unset_variables_and_returns_them(machine):
    chosen = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(machine / "java")}
    assert configure() == chosen
    assert {name: os.environ[name] for name in chosen} == chosen
    assert configure() == {}


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "JAVA_HOME"])
def test_configure_keeps_variables_that_are_set(machine, monkeypatch, name):
    monkeypatch.setenv(name, "/somewhere")
    assert name not in configure()
    assert os.environ[name] == "/somewhere"


def test_configure_warns_about_a_driver_program_that_is_not_python(machine, monkeypatch, caplog):
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    configure()
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "jupyter"
    assert "PYSPARK_DRIVER_PYTHON=jupyter" in caplog.text


def test_configure_after_the_start_of_spark_fails_with_the_remedy(started):
    with pytest.raises(
        UnsupportedError, match=r"SESSION_STARTED.*spark\.pyspark\.python"
    ) as caught:
        configure()
    assert f"PYSPARK_PYTHON={sys.executable}" in caught.value.remedy
    assert "PYSPARK_PYTHON" not in os.environ


def test_configure_after_the_start_succeeds_if_an_interpreter_was_set(started, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/somewhere")
    assert configure() == {}


def test_configure_after_the_start_succeeds_if_python3_on_path_is_this_one(started, monkeypatch):
    """This is the case in an activated environment, with or without spark-submit."""
    executable(started / "env" / "bin" / "python3", "exit 0")
    monkeypatch.setattr(sys, "executable", str(started / "env" / "bin" / "python"))
    monkeypatch.setenv("PATH", str(started / "env" / "bin"))
    assert configure() == {}


def test_configure_without_any_java_fails_with_the_remedy(machine, monkeypatch):
    monkeypatch.setenv("PATH", str(machine / "bin"))
    monkeypatch.setattr(importlib_util(), "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="JAVA_NOT_FOUND") as caught:
        configure()
    assert "JAVA_HOME" in caught.value.remedy
    assert "PYSPARK_PYTHON" not in os.environ


def importlib_util():
    from pyspark_pyrocket.tools import java

    return java.importlib.util


@pytest.mark.parametrize(
    "module", ["pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.lookup_data_sources"]
)
def test_configure_does_nothing_in_the_processes_that_spark_starts(started, monkeypatch, module):
    pass_for(monkeypatch, module)
    assert configure() == {}
    assert "PYSPARK_PYTHON" not in os.environ


def test_configure_with_spark_connect_warns_that_the_servers_python_is_used(
    machine, monkeypatch, caplog
):
    monkeypatch.setenv("SPARK_REMOTE", "sc://server:15002")
    with caplog.at_level(logging.WARNING):
        assert configure() == {}
    assert "the server's Python" in caplog.text
    assert "PYSPARK_PYTHON" not in os.environ


def test_the_module_of_configure_is_imported_on_first_use():
    code = (
        "import sys, pyspark_pyrocket\n"
        "assert 'pyspark_pyrocket.tools.interpreters' not in sys.modules\n"
        "assert callable(pyspark_pyrocket.configure)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="confgure"):
        _ = pyspark_pyrocket.confgure


@pytest.mark.heavy
@pytest.mark.spark
def test_a_program_that_calls_configure_runs_with_a_python_that_is_not_on_path(tmp_path):
    """For example a program started by an IDE, cron, systemd or a notebook kernel."""
    executable(tmp_path / "bin" / "python3", "exit 1")
    settings = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT / 'store'}:{ROOT / 'connector'}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": os.environ["SPARK_HOME"],
        "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "JAVA_HOME": str(find_java().home),
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path / "store")],
        env=settings,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines()[:4] == ["python True", "again {}", "rows 3", "worker [{}]"], (
        done.stderr
    )
    assert "late [SESSION_STARTED]" in done.stdout
