"""A broker whose writes, fsyncs or opens fail for a while: its health says so, it recovers by
itself where that is safe, and no acknowledged message is lost.
"""

import os
import sys
import time
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest
from pyrocket import Client, Connection, Message, RemoteSink, Store, Timeouts
from pyrocket.errors import PyrocketError
from pyrocket.wire.descriptors import message_class
from support.broker_process import start, wait_until_it_serves
from support.failing_disk import FailingDisk

pytestmark = [
    *(pytest.mark.crash, pytest.mark.slow),
    pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD and prlimit"),
]
SERVING, NOT_SERVING = 1, 2


class Broker:
    """A broker process with one connection that stays open."""

    def __init__(self, path, **environment):
        flags = ("--flush", "sync", "--log-level", "error", "--metrics", "127.0.0.1:0")
        self._path, self.sent = path, []
        self.process = start(path, "--listen", "127.0.0.1:0", *flags, **environment)
        found = wait_until_it_serves(self.process, path)
        self._metrics = found.metrics
        times = Timeouts(connect=10, call=10, total=10, first=10)
        self.client = Client(Connection(found.listen[0]), times)
        self.sink = RemoteSink(self.client)
        self.channel = grpc.insecure_channel(found.listen[0])
        assert self.grpc_health == SERVING

    def send(self, count, topic="t"):
        """Send messages; return the code of the first error, or an empty string."""
        for number in range(count):
            body = b"%d of %d" % (number, len(self.sent))
            try:
                self.sink.send(Message(topic=topic, body=body), create=True)
            except PyrocketError as error:
                return error.code
            self.sent.append(body)
        return ""

    @property
    def health(self):
        try:
            with urlopen(f"http://{self._metrics}/health", timeout=20) as found:
                return found.status, found.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    @property
    def grpc_health(self):
        request = message_class("grpc.health.v1.HealthCheckRequest")(service="")
        call = self.channel.unary_unary("/grpc.health.v1.Health/Check")
        reply = call(request.SerializeToString(), timeout=20)
        return message_class("grpc.health.v1.HealthCheckResponse").FromString(reply).status

    def await_health(self, seconds=30):
        """Wait until the broker is ready, without an append; return how long it takes."""
        began = time.monotonic()
        while self.grpc_health != SERVING:
            assert time.monotonic() - began < seconds
            time.sleep(0.1)
        assert self.health == (200, "ready\n")
        return time.monotonic() - began

    def stop(self):
        self.client.close()
        self.channel.close()
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode

    def stored(self, topics=("t",)):
        """Return the bodies of the messages in the store."""
        with Store.open(self._path, read_only=True) as store:
            return [each.body for topic in topics for each in store.messages(topic)]


@pytest.fixture
def disk(tmp_path):
    return FailingDisk(tmp_path / "disk")


@pytest.fixture
def begin(tmp_path):
    """Starts brokers of one store, which are killed at the end."""
    started = []

    def begin_one(**environment):
        started.append(Broker(tmp_path / "store", **environment))
        return started[-1]

    yield begin_one
    for one in started:
        one.process.kill()
        one.process.communicate()


def test_a_broker_is_ready_again_soon_after_failed_writes_and_without_free_descriptors(begin, disk):
    broker = begin(**disk.environment)
    assert broker.send(20) == ""
    disk.fail("write")
    assert broker.send(1) == "WRITE_FAILED"
    assert broker.grpc_health == NOT_SERVING
    status, reason = broker.health
    assert status == 503
    assert "WRITE_FAILED" in reason
    disk.work("write")
    assert broker.await_health() < 15
    with few_descriptors(broker.process.pid):
        # On a busy machine, the broker may be ready again before its health is asked.
        for number in range(30):
            code = broker.send(1, topic=f"new-{number}")
            if code == "WRITE_FAILED" and broker.grpc_health == NOT_SERVING:
                break
        else:
            pytest.fail("the broker was ready after each failed write")
    broker.await_health()
    assert broker.send(20) == ""
    assert broker.send(1, topic="new") == ""
    topics = [each.name for each in broker.client.call("Topics").value]
    assert broker.stop() == 0
    assert sorted(broker.stored(topics)) == sorted(broker.sent)


@contextmanager
def few_descriptors(pid):
    """Let a process open no more files than it has open."""
    import resource

    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_a_failed_fsync_is_never_retried_and_the_next_start_recovers(begin, disk):
    broker = begin(**disk.environment)
    assert broker.send(20) == ""
    disk.fail("fsync")
    assert broker.send(1) == "STORE_FAILED"
    disk.work("fsync")
    assert broker.send(1) == "STORE_FAILED"
    time.sleep(12)  # Longer than the interval at which failed writes are tried again.
    assert broker.health == (503, "a write or fsync failed\n")
    assert broker.grpc_health == NOT_SERVING
    assert broker.stop() == 1
    again = begin()
    again.sent += broker.sent
    assert again.send(20) == ""
    assert again.stop() == 0
    assert {*again.sent} <= {*again.stored()}
