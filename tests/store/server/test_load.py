"""A broker under load: its event loop is never blocked, and its memory stays within the limits."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyrocket import (
    Client,
    Connection,
    MessageQueue,
    QueueRange,
    RemoteAdmin,
    RemoteSink,
    RemoteSource,
    SinkBatch,
    Timeouts,
)
from pyrocket.errors import OffsetOutOfRangeError
from pyrocket.server import call_server
from support.broker_process import ending, running

HELD_S = 0.02
MIB = 1 << 20
QUEUES = [MessageQueue("load", "broker-a", number) for number in range(4)]


def rows(count, body_bytes):
    body = os.urandom(body_bytes)
    return pa.record_batch({"body": pa.array([body] * count, pa.binary())})


class Load:
    """Clients that append, stage, read and query, each in a thread, until the `with` block ends."""

    def __init__(self, address, batch, appenders=2, readers=2):
        self._address, self._batch = address, batch
        self._stopped, self.errors, self.done = threading.Event(), [], 0
        works = [self.append] * appenders + [self.read] * readers + [self.stage, self.ask]
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors

    def _run(self, work):
        # On a busy machine, dozens of slow fsyncs may precede a call.
        client = Client(Connection(self._address), Timeouts(call=120, total=120, first=60))
        try:
            while not self._stopped.is_set():
                work(client)
                self.done += 1
        except Exception as error:
            self.errors.append(error)
        finally:
            client.close()

    def append(self, client):
        RemoteSink(client).append(self._batch, topic="load")

    def stage(self, client):
        one = SinkBatch(identity="load", target="load", batch=self.done)
        sink = RemoteSink(client)
        with sink.stage(one, partition=0, attempt=0) as stager:
            stager.append(self._batch, topic="load")
            sink.discard([stager.finish()])

    def read(self, client):
        source = RemoteSource(client)
        bounds = source.bounds(["load"])
        ranges = [QueueRange(queue, has.minimum, has.maximum) for queue, has in bounds.items()]
        with suppress(OffsetOutOfRangeError):  # Cleaning has deleted the messages.
            for _ in source.slices(ranges):
                if self._stopped.is_set():
                    break

    def ask(self, client):
        RemoteSource(client).topics()
        RemoteSource(client).bounds(["load"])


@contextmanager
def watched(path, seconds, *arguments):
    """Run a broker whose event loop is measured; yield its process and its `RunningBroker`."""
    command = [sys.executable, "-m", "support.watched_broker", str(seconds), str(path)]
    tests = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([os.environ["PYTHONPATH"], tests])
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    output = process.communicate

    def kept(timeout):
        process.printed = output(timeout=timeout)[0]

    process.communicate = kept
    with ending(process, path) as found:
        yield process, found


@pytest.mark.heavy
def test_no_callback_blocks_the_event_loop(tmp_path):
    """The broker is under load, deletes files, and each fsync takes a second.

    Other processes may delay a callback. Therefore the CPU time of callbacks is measured; their
    elapsed time only has to stay below the duration of an fsync.
    """
    with watched(tmp_path / "store", 0, "--log-file-bytes", "4MiB") as (process, found):
        client = Client(Connection(found.listen[0]))
        RemoteAdmin(client).topics.create("load", read_queues=4, write_queues=4)
        RemoteSink(client).append(rows(2000, 4000), topic="load")
        client.close()
        process.kill()
    # The next broker recovers the store.
    with watched(tmp_path / "store", 1, "--flush", "sync") as (process, found):
        client = Client(Connection(found.listen[0]))
        client.call("Topics")
        process.send_signal(signal.SIGUSR1)
        with Load(found.listen[0], rows(1000, 2000)) as load:
            time.sleep(1)
            RemoteAdmin(client).clean(total_bytes=4 * MIB)
            RemoteSink(client).flush()
        process.send_signal(signal.SIGUSR2)
        assert load.done > 5
        client.close()
    longest = json.loads(process.printed)
    assert longest["cpu"] < HELD_S
    assert longest["held"] < 0.8
    sys.stdout.write(f"{longest}\n")


def anonymous_mib(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024


def metric(found, name):
    with urllib.request.urlopen(f"http://{found.metrics}/metrics") as reply:
        text = reply.read().decode()
    return float(re.search(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE)[1])


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc for the memory of a process")
def test_memory_stays_within_the_limits(tmp_path):
    """Three streams that are not read hold one block each, while others append and read."""
    bound, block_mib = 128, call_server._BLOCK_PRICE / MIB
    arguments = ["--metrics", "127.0.0.1:0", "--total-bytes", f"{bound}MiB"]
    with running(tmp_path / "store", *arguments) as (process, found):
        client = Client(Connection(found.listen[0]))
        RemoteAdmin(client).topics.create("load", read_queues=4, write_queues=4)
        for _ in range(20):
            RemoteSink(client).append(rows(1000, 5000), topic="load")
        source = RemoteSource(client)
        ranges = [QueueRange(each, 0, has.maximum) for each, has in source.bounds(["load"]).items()]
        stopped = [client.stream("Slices", ranges=ranges) for _ in range(3)]
        for stream in stopped:
            next(stream)
        time.sleep(1)
        assert 0 < metric(found, "pyrocket_bytes_in_memory") / MIB < 1.05 * 3 * block_mib
        most = [anonymous_mib(process.pid)]
        with Load(found.listen[0], rows(1000, 5000), appenders=4, readers=4):
            until = time.monotonic() + 8
            while time.monotonic() < until:
                most.append(anonymous_mib(process.pid))
                time.sleep(0.05)
        for stream in stopped:
            stream.close()
        client.close()
        assert max(most) < 256 + bound
        until = time.monotonic() + 20
        while metric(found, "pyrocket_bytes_in_memory") and time.monotonic() < until:
            time.sleep(0.1)
        assert metric(found, "pyrocket_bytes_in_memory") == 0
        until = time.monotonic() + 20
        while anonymous_mib(process.pid) > 0.75 * max(most) and time.monotonic() < until:
            time.sleep(0.1)
        assert anonymous_mib(process.pid) < 256
        sys.stdout.write(f"at most {max(most):.0f} MiB, then {anonymous_mib(process.pid):.0f}\n")
