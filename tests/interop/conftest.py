"""Fixtures of the tests against RocketMQ; the fixture `java` has one value for each version."""

import itertools
from pathlib import Path

import pytest
from crash.nursery import Nursery
from interop.maven import VERSIONS, UnavailableError, class_path
from interop.rocketmq import Broker, Peer, Program

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items):
    """Mark all tests here: they need Maven and Java."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Add the logs of the Java processes to the report of a failed test."""
    report = yield
    if report.when == "call" and report.failed and "java" in getattr(item, "funcargs", {}):
        for program in item.funcargs["java"].programs():
            report.sections += list(program.logs())
    return report


class Java:
    """One version of RocketMQ: its client, and brokers on request."""

    def __init__(self, version, classes, folder):
        self.version, self.classes, self._folder = version, classes, folder
        self.peer = Peer(classes, folder / "peer")
        self._brokers: list[Program] = []
        self._numbers = itertools.count()

    @property
    def is_5(self):
        return self.version.startswith("5")

    def broker(self, store, **config):
        """Start a broker. Use the result in a `with` block, which waits until the broker serves."""
        home = self._folder / f"broker{next(self._numbers)}"
        self._brokers.append(Broker(self.peer, self.classes, home, store, **config))
        return self._brokers[-1]

    def programs(self):
        return [*self._brokers, self.peer]

    def end_brokers(self):
        """Kill processes that a test left running."""
        for broker in self._brokers:
            if broker.process.poll() is None:
                broker.kill()
        self._brokers.clear()


@pytest.fixture(scope="session", params=VERSIONS)
def java_version(request, tmp_path_factory, checkout_in_children):
    """The processes of one version; skips the test if the version is not available."""
    cache = getattr(request.config, "cache", None)
    folder = cache.mkdir("interop") if cache else tmp_path_factory.mktemp("classes")
    try:
        classes = class_path(request.param, folder)
    except UnavailableError as error:
        pytest.skip(f"RocketMQ {request.param} is not available: {error}")
    java = Java(request.param, classes, tmp_path_factory.mktemp("java"))
    yield java
    java.end_brokers()
    java.peer.close()


@pytest.fixture
def java(java_version):
    yield java_version
    java_version.end_brokers()


@pytest.fixture
def store_path(tmp_path):
    return tmp_path / "store"


@pytest.fixture(scope="session")
def nursery(checkout_in_children):
    one = Nursery()
    yield one
    one.close()
