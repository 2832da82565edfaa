"""Runs brokers as separate processes."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from pyrocket.disk.layout import Layout
from pyrocket.metadata.broker_file import BrokerFile

from support.forked import Forked, run_command

WAIT_S = 60


def start(path, *arguments, **environment):
    """Start `pyrocket broker` with pipes for both outputs; forked if it has this environment."""
    given = ["broker", str(path), *map(str, arguments)]
    if not environment:
        return Forked(run_command, *given)
    command = [sys.executable, "-m", "pyrocket", *given]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)


def wait_until_it_serves(process, path):
    """Wait until the broker serves, and return the `RunningBroker` that the store's files
    describe.
    """
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = BrokerFile(Layout(path)).read()
        if found and found.pid == process.pid:
            return found
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    raise AssertionError("the broker has not started")


@contextmanager
def ending(process, path):
    """Wait until the broker serves, yield its `RunningBroker`, and stop the broker at the end."""
    try:
        yield wait_until_it_serves(process, path)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)


@contextmanager
def running(path, *arguments, **environment):
    """Run a broker on a free port; yield the process and its `RunningBroker`."""
    given = ("--listen", "127.0.0.1:0") if "--listen" not in arguments else ()
    process = start(path, *given, *arguments, **environment)
    with ending(process, path) as found:
        yield process, found


def metric(found, name, label):
    """Return the values of a metric of a broker, summed by a label."""
    with urllib.request.urlopen(f"http://{found.metrics}/metrics") as reply:
        families = text_string_to_metric_families(reply.read().decode())
    values = Counter()
    for sample in (each for family in families for each in family.samples if each.name == name):
        values[sample.labels[label]] += sample.value
    return values


class RestartableBroker:
    """A broker that a test can stop, and start again on the same port."""

    def __init__(self, path, *flags):
        self._path, self._stack, self.address, self.metrics = Path(path), ExitStack(), "", ""
        self._flags = flags
        self.start()

    def start(self):
        listen = ("--listen", self.address or "127.0.0.1:0")
        flags = (*listen, "--metrics", "127.0.0.1:0", *self._flags)
        _, found = self._stack.enter_context(running(self._path, *flags))
        self.address, self.metrics = found.listen[0], found.metrics

    def stop(self):
        self._stack.close()
