"""A pytest plugin for `mutants.py map`: records the lines that each test executes, and the test's
duration.
"""

import json
import os
import time
import warnings

import coverage
import pytest

worker, folder = os.environ.get("PYTEST_XDIST_WORKER", "main"), os.environ["MUTANTS"]
recorder = coverage.Coverage(
    data_file=f"{folder}/lines.{worker}", source=["pyrocket", "pyspark_pyrocket"], config_file=False
)
recorder.start()
seconds = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    recorder.switch_context(item.nodeid)
    started = time.monotonic()
    yield
    seconds[item.nodeid] = time.monotonic() - started


def pytest_sessionfinish():
    with open(f"{folder}/seconds.{worker}.json", "w") as file:
        json.dump(seconds, file)
    with warnings.catch_warnings(action="ignore"):
        recorder.stop()
        recorder.save()
