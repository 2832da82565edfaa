"""The pytest plugin gives users' tests a store and a clock, and costs nothing in other tests."""

import os
import subprocess
import sys

from pyrocket.tools import pytest_plugin

pyrocket_config, pyrocket_path = pytest_plugin.pyrocket_config, pytest_plugin.pyrocket_path
pyrocket_clock, pyrocket_store = pytest_plugin.pyrocket_clock, pytest_plugin.pyrocket_store

SUITE = """
from pyrocket import Message

def test_a_store_and_its_clock(pyrocket_store, pyrocket_clock):
    start = pyrocket_clock()
    pyrocket_store.append(Message(topic="t", body=b"now", queue_id=0))
    pyrocket_store.append(Message(topic="t", body=b"later", queue_id=0, delay_level=18))
    pyrocket_clock.advance(2 * 3_600_000 - 1)
    pyrocket_store.deliver_due()
    assert [m.body for m in pyrocket_store.read("t", 0, 0)] == [b"now"]
    pyrocket_clock.advance(1)
    pyrocket_store.deliver_due()
    first, second = pyrocket_store.read("t", 0, 0)
    assert (first.store_timestamp, second.store_timestamp) == (start, start + 2 * 3_600_000)

def test_each_test_has_its_own(pyrocket_store, pyrocket_path):
    assert pyrocket_store.topics.all() == {}
    assert pyrocket_store.path == pyrocket_path

def test_the_configuration_is_that_of_the_suite(pyrocket_store):
    assert pyrocket_store.broker_name == "mine"
"""

CONFTEST = """
import pytest
from pyrocket import StoreConfig

@pytest.fixture
def pyrocket_config():
    return StoreConfig(broker_name="mine")
"""


def run_pytest(folder, suite, *arguments):
    (folder / "test_it.py").write_text(suite)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        [*command, str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=120,
    )


def with_plugin(folder, suite, *arguments):
    return run_pytest(folder, suite, "-p", "pyrocket.tools.pytest_plugin", *arguments)


def test_the_fixtures_give_each_test_its_own_store_and_clock(tmp_path, checkout_in_children):
    """Its configuration can be replaced."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    done = with_plugin(tmp_path, SUITE, "-W", "error")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_an_unused_plugin_costs_nothing(tmp_path, checkout_in_children):
    """The plugin imports no heavy package, and has no fixture that runs by itself."""
    suite = """
import sys

def test_nothing_heavy_is_imported():
    heavy = {"numpy", "pyarrow", "pyspark", "rich", "click", "pyrocket.store", "pyrocket.testing"}
    assert not heavy & set(sys.modules)
    assert "pyrocket.tools.pytest_plugin" in sys.modules

def test_nothing_runs_by_itself(request):
    assert not [name for name in request.fixturenames if name.startswith("pyrocket")]
"""
    done = with_plugin(tmp_path, suite)
    assert "2 passed" in done.stdout, done.stdout


def test_sparks_processes_use_the_tests_clock(spark, pyrocket_store, pyrocket_clock):
    """Messages that a job writes have store times of the test's clock."""
    rows = spark.createDataFrame([("hello",)], "body STRING")
    place = {"path": str(pyrocket_store.path), "topic": "t"}
    rows.write.format("pyrocket").mode("append").options(**place).save()
    (found,) = spark.read.format("pyrocket").options(**place).load().collect()
    assert found.storeTimestamp.timestamp() * 1000 == pyrocket_clock() == pytest_plugin.START_MS
