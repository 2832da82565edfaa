"""A broker is killed while clients write: no acknowledged message is lost, and each batch is
published once.
"""

import random
import socket
import threading

import pyarrow as pa
import pytest
from pyrocket import SinkBatch, Store
from pyrocket.remote import sink as remote_sink
from pyrocket.remote.client import Client, Timeouts
from pyrocket.remote.connection import Connection
from pyrocket.remote.sink import RemoteSink
from pyrocket.tools.verify.verify import verify
from support.broker_process import start, wait_until_it_serves
from support.name_server import wait_until

pytestmark = pytest.mark.crash

PARTS, ROWS = 10, 50


def rows(first, count=ROWS):
    return pa.record_batch(
        {"body": [b"%d " % row + b"x" * 200 for row in range(first, first + count)]}
    )


class Writers:
    """Two threads, one that appends and one that publishes batches, until the block ends."""

    def __init__(self, address):
        self.address, self.stopping = address, threading.Event()
        self.acknowledged, self.published = [], 0
        self.errors = []
        self.threads = [
            threading.Thread(target=self.run, args=(work,)) for work in (self.append, self.publish)
        ]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def run(self, work):
        client = Client(Connection(self.address), Timeouts(total=60))
        try:
            sink = RemoteSink(client)
            while not self.stopping.is_set():
                work(sink)
        except Exception as error:
            self.errors.append(error)
        finally:
            client.close()

    def append(self, sink):
        first = len(self.acknowledged) * ROWS
        sink.append(rows(first), topic="appended")
        self.acknowledged.append(first)

    def publish(self, sink):
        named = SinkBatch(identity="query", target="", batch=self.published, run="one")
        first = self.published * PARTS * ROWS
        with sink.stage(named, partition=0, attempt=0) as stager:
            for part in range(PARTS):
                stager.append(rows(first + part * ROWS), topic="published")
                self.stopping.wait(0.01)
            sink.publish(named, [stager.finish()])
        self.published += 1


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def numbers(store, topic):
    return sorted(int(message.body.split()[0]) for message in store.messages(topic))


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.heavy)])
def test_a_killed_broker_loses_no_acknowledged_message(tmp_path, monkeypatch, kills):
    monkeypatch.setattr(remote_sink, "BLOCK_BYTES", 20_000)
    path, listen = tmp_path / "store", ("--listen", f"127.0.0.1:{free_port()}")
    broker = start(path, *listen)
    try:
        wait_until_it_serves(broker, path)
        with Writers(listen[1]) as writers:
            wait_until(lambda: (writers.acknowledged and writers.published) or writers.errors)
            for _ in range(kills):
                writers.stopping.wait(random.uniform(0.2, 1))
                broker.kill()
                broker.communicate()
                broker = start(path, *listen)
                wait_until_it_serves(broker, path)
            writers.stopping.wait(0.5)
    finally:
        broker.terminate()
        broker.communicate()
    assert not writers.errors
    assert writers.acknowledged
    assert writers.published
    with Store.open(path) as store:
        assert numbers(store, "published") == [*range(writers.published * PARTS * ROWS)]
        there = set(numbers(store, "appended"))
        assert there >= set(range(len(writers.acknowledged) * ROWS))
    assert verify(path).ok
