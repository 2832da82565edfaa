"""Fixtures and settings of the whole suite."""

import gc
import importlib.util
import os
import sys
from pathlib import Path

import hypothesis
import pytest
from pyspark_pyrocket.tools.python_link import python_for_spark

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""In a session of a few minutes, the JVM would spend half the time on optimising machine code."""

# This also applies to processes that tests start: compiling all tests takes a worker seven seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = [str(ROOT / "store"), str(ROOT / "connector")]

# Each run uses the same examples, so that failures can be repeated; PYROCKET_EXPLORE=1 generates
# new examples. There is no deadline, because a slow machine is not a failure.
hypothesis.settings.register_profile(
    "base", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
BASE = hypothesis.settings.get_profile("base")
hypothesis.settings.register_profile("repeat", BASE, derandomize=True)
hypothesis.settings.register_profile("explore", BASE, print_blob=True)
hypothesis.settings.load_profile("explore" if os.environ.get("PYROCKET_EXPLORE") else "repeat")


def pytest_collection_modifyitems(items):
    """Mark tests that use Spark, so that `-m "not spark"` is quick, and run the longest tests
    first. These are crash tests and slow ones; no worker should still run one when all other
    workers are done.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: not any(map(item.get_closest_marker, ("crash", "slow"))))


def pytest_collection_finish():
    """Exclude the collected tests from garbage collection: a full collection would take a third of
    a second.
    """
    gc.collect()
    gc.freeze()


def spark_home_without_zip(folder):
    """Make a SPARK_HOME of links that lacks `python/lib/pyspark.zip`, and return it.

    Spark puts that archive first on the path of each Python process that it starts. The archive
    contains no compiled files, so every process would compile pyspark, which takes 0.8 s of CPU
    time instead of 0.25 s from site-packages.
    """
    installed = Path(importlib.util.find_spec("pyspark").origin).parent
    for path in installed.iterdir():
        if path.name != "python":
            (folder / path.name).symlink_to(path)
    (folder / "python" / "lib").mkdir(parents=True)
    for archive in (installed / "python" / "lib").glob("py4j-*.zip"):
        (folder / "python" / "lib" / archive.name).symlink_to(archive)
    return folder


@pytest.fixture(scope="session", autouse=True)
def checkout_in_children(request, tmp_path_factory):
    """Make processes that tests start, including Spark's workers, use this checkout and
    interpreter.
    """
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in inherited if path and path not in SOURCE_ROOTS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([*SOURCE_ROOTS, *kept]))
        patch.setenv("PYSPARK_PYTHON", python_for_spark(sys.executable))
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        # Spark resolves the host's name when it starts; the tests use no network.
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        if not any(item.get_closest_marker("bench") for item in request.session.items):
            # Applies to all tests in this process and its children, except benchmarks.
            options = os.environ.get("SPARK_SUBMIT_OPTS", ""), QUICK_JAVA
            patch.setenv("SPARK_SUBMIT_OPTS", " ".join(filter(None, options)))
            home = spark_home_without_zip(tmp_path_factory.mktemp("spark-home"))
            patch.setenv("SPARK_HOME", str(home))
        # A test must not use a developer's store by accident.
        patch.delenv("PYROCKET_STORE", raising=False)
        yield


@pytest.fixture(scope="session")
def spark(checkout_in_children, tmp_path_factory):
    """The Spark session, with two cores, of all tests that need one."""
    from pyspark.sql import SparkSession
    from pyspark_pyrocket import configure

    configure()
    here = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": here / "local",
        "spark.sql.warehouse.dir": here / "warehouse",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
        # These two settings reduce the fixed cost of a micro-batch to a third.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
    }
    builder = SparkSession.builder.master("local[2]").appName("pyrocket tests")
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def spark_before_grpc(request, checkout_in_children):
    """Start the JVM before other tests: pyspark forks, which may fail while gRPC makes calls."""
    if any(item.get_closest_marker("spark") for item in request.session.items):
        request.getfixturevalue("spark")
