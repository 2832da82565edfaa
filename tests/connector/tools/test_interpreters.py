"""`configure()` sets the interpreter and the Java that Spark uses, unless they are set."""

import logging
import os
import stat
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from types import SimpleNamespace

import pyspark_pyrocket
import pytest
from pyrocket.errors import UnsupportedError
from pyspark_pyrocket import configure
from pyspark_pyrocket.tools import interpreters
from pyspark_pyrocket.tools.java import find_java
from pyspark_pyrocket.tools.python_link import python_for_spark
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


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def started(machine, monkeypatch):
    monkeypatch.setattr(interpreters, "_jvm_runs", lambda: True)
    return machine


def test_configure_sets_unset_variables_and_returns_them(machine):
    chosen = {
        "PYSPARK_PYTHON": python_for_spark(sys.executable),
        "JAVA_HOME": str(machine / "java"),
    }
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
    assert f"PYSPARK_PYTHON={python_for_spark(sys.executable)}" in caught.value.remedy
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


@pytest.fixture
def spaced(tmp_path):
    """An environment whose path has a space, and the modules of this one."""
    home = tmp_path / "My Projects" / "venv"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "these.pth").write_text("\n".join(path for path in sys.path if "-packages" in path))
    return home


def test_a_python_in_a_path_with_a_space_gets_a_link_to_its_environment(tmp_path, spaced):
    python = python_for_spark(str(spaced / "bin" / "python"))
    assert " " not in python
    assert python_for_spark(python) == python
    found = subprocess.run(
        [python, "-c", "import sys, numpy; print(sys.prefix)"], capture_output=True, text=True
    )
    assert os.path.samefile(found.stdout.strip(), spaced), found.stderr


def test_configure_sets_the_link(machine, spaced, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(spaced / "bin" / "python"))
    assert configure()["PYSPARK_PYTHON"] == python_for_spark(sys.executable) != sys.executable


@pytest.mark.parametrize("cache", ["my cache", "file"])
def test_without_a_usable_cache_the_link_is_in_a_private_temporary_folder(
    tmp_path, spaced, monkeypatch, cache
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    python = Path(python_for_spark(str(spaced / "bin" / "python")))
    folder = python.parents[2]
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    assert " " in python_for_spark(str(spaced / "bin" / "python")), "others could replace the link"


def test_a_link_follows_an_environment_that_was_built_again(spaced):
    python = Path(python_for_spark(str(spaced / "bin" / "python")))
    link = python.parents[1]
    link.unlink()
    link.symlink_to("/nowhere")
    assert python_for_spark(str(spaced / "bin" / "python")) == str(python)
    assert python.exists()


def test_a_configured_path_with_a_space_is_logged(machine, monkeypatch, caplog):
    monkeypatch.setenv("PYSPARK_PYTHON", "/My Projects/bin/python")
    configure()
    assert "PYSPARK_PYTHON=/My Projects/bin/python" in caplog.text


@pytest.mark.heavy
@pytest.mark.spark
def test_a_program_in_a_path_with_a_space_finds_the_data_source(tmp_path, spaced):
    settings = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT / 'store'}:{ROOT / 'connector'}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(find_java().home),
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [spaced / "bin" / "python", str(JOB), str(tmp_path / "store")],
        env=settings,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "rows 3" in done.stdout, done.stderr


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


def test_register_registers_the_source_of_the_format(machine):
    registered = []
    session = SimpleNamespace(dataSource=SimpleNamespace(register=registered.append))
    pyspark_pyrocket.register(session)
    assert registered == [pyspark_pyrocket.DefaultSource]


FAILED_LOOK_UP = """
import sys
from pathlib import Path
from types import SimpleNamespace
import pyspark_pyrocket
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = spark.config("spark.driver.host", "127.0.0.1").getOrCreate()
rows = spark.createDataFrame([("x",)], "body STRING").write.format("pyrocket").mode("append")
rows = rows.option("topic", "t")
Path(sys.argv[2]).touch()
for _ in range(2):
    try:
        rows.save(sys.argv[1])
    except Exception as error:
        print("not found", "DATA_SOURCE_NOT_FOUND" in str(error))
pyspark_pyrocket.register(spark)
rows.save(sys.argv[1])
print("rows", spark.read.format("pyrocket").option("topic", "t").load(sys.argv[1]).count())
"""


@pytest.mark.heavy
@pytest.mark.spark
def test_register_repairs_a_session_after_a_failed_look_up(tmp_path):
    """Spark looks up data sources once; here, the Python process of the look-up dies."""
    dies = tmp_path / "dies"
    python = f'if [ -e {dies} ]; then rm {dies}; exit 1; fi; exec {sys.executable} "$@"'
    settings = {
        **os.environ,
        "PYSPARK_PYTHON": str(executable(tmp_path / "python", python)),
        "JAVA_HOME": str(find_java().home),
    }
    done = subprocess.run(
        [sys.executable, "-c", FAILED_LOOK_UP, str(tmp_path / "store"), str(dies)],
        env=settings,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = done.stdout.splitlines()
    assert lines == ["not found True", "not found True", "rows 1"], done.stderr[-3000:]
