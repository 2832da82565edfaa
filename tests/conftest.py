"""Fixtures and settings of the whole suite."""

import gc
import os
import sys
from collections import deque
from pathlib import Path

import hypothesis
import pytest
from pyrocket.disk import io
from pyspark_pyrocket.tools.python_link import python_for_spark
from support import spark_home
from support.shares import TIMES

# This also applies to processes that tests start: compiling all tests takes a worker seven seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nothing is freed while the tests are collected, which would take a second in each worker.
gc.disable()

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = [str(ROOT / "store"), str(ROOT / "connector")]

# Each run uses the same examples, so that failures can be repeated; PYROCKET_EXPLORE=1 generates
# new examples, and larger numbers generate more of them. There is no deadline, because a slow
# machine is not a failure.
hypothesis.settings.register_profile(
    "base",
    deadline=None,
    max_examples=20 * TIMES,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
BASE = hypothesis.settings.get_profile("base")
hypothesis.settings.register_profile("repeat", BASE, derandomize=True)
hypothesis.settings.register_profile("explore", BASE, print_blob=True)
hypothesis.settings.load_profile("explore" if os.environ.get("PYROCKET_EXPLORE") else "repeat")


SPARK_WORKERS = 2
"""How many workers start a Spark session, which takes much CPU time to load its code."""

ONCE_MORE = pytest.mark.flaky(reruns=1, only_rerun=["Python worker (failed )?to connect back"])
"""A Python process that Spark starts must connect back within ten seconds. On a busy machine it may
not; a test that fails with this error runs once more. The plugin makes each test that it may run
again wait for up to 40 ms.
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    """Mark tests that use Spark, so that `-m "not spark"` is quick, and order the tests.

    Each worker begins with an equal part of the tests; later, tests are moved from the ends of
    these parts to other workers. The first parts begin with the tests that use Spark: they start
    the JVM before other tests, because pyspark forks, which may fail while gRPC makes calls. The
    other parts begin with the longest tests, which are crash tests and slow ones: no worker should
    still run one when all other workers are done.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            item.add_marker(ONCE_MORE)
    yield
    spark, long, short = [], [], deque()
    for item in items:
        is_long = any(map(item.get_closest_marker, ("crash", "slow")))
        (spark if item.get_closest_marker("spark") else long if is_long else short).append(item)
    workers, left = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), len(items)
    first = min(workers, SPARK_WORKERS)
    others = workers - first
    parts = [
        spark[number::first] + (long[number::first] if not others else [])
        for number in range(first)
    ]
    parts += [long[number::others] for number in range(others)]
    items.clear()
    for number, part in enumerate(parts):
        size = left // (workers - number)  # As the scheduler divides them.
        short.extendleft(reversed(part[size:]))
        more = min(size - len(part[:size]), len(short))
        items += [*part[:size], *(short.popleft() for _ in range(more))]
        left -= size
    items += short


def pytest_collection_finish():
    """Exclude the collected tests from garbage collection: a full collection would take a third of
    a second.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def checkout_in_children(request):
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
            home, options = spark_home.prepare()
            given = os.environ.get("SPARK_SUBMIT_OPTS", "")
            patch.setenv("SPARK_SUBMIT_OPTS", " ".join(filter(None, (given, options))))
            patch.setenv("SPARK_HOME", str(home))
        # A test must not use a developer's store by accident.
        patch.delenv("PYROCKET_STORE", raising=False)
        yield


@pytest.fixture
def quick_disk(monkeypatch):
    """Disable fsync, which only costs time in tests without power losses."""
    monkeypatch.setattr(io, "sync", lambda descriptor: None)
    monkeypatch.setattr(io, "sync_directory", lambda path: None)


@pytest.fixture(scope="module")
def without_collections():
    """Disable garbage collection, which would take half the time of tests that parse all code."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def spark(checkout_in_children, tmp_path_factory):
    """The Spark session, with two cores, of all tests that need one."""
    session = spark_home.new_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
