"""Brokers as processes, for tests of their life."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

from pyrocket.disk.layout import Layout
from pyrocket.metadata.broker_file import BrokerFile

WAIT_S = 60


def start(path, *arguments, **environment):
    """Start `pyrocket broker`; both outputs are pipes."""
    command = [sys.executable, "-m", "pyrocket", "broker", str(path), *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)


def wait_until_it_serves(process, path):
    """Return what the store says of its broker."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = BrokerFile(Layout(path)).read()
        if found and found.pid == process.pid:
            return found
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    raise AssertionError("the broker does not start")


@contextmanager
def ending(process, path):
    """Wait until a broker serves, and stop it at the end; the value is what the store says."""
    try:
        yield wait_until_it_serves(process, path)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)


@contextmanager
def running(path, *arguments, **environment):
    """Run a broker on a free port; the value is the process and what the store says of it."""
    given = ("--listen", "127.0.0.1:0") if "--listen" not in arguments else ()
    process = start(path, *given, *arguments, **environment)
    with ending(process, path) as found:
        yield process, found
