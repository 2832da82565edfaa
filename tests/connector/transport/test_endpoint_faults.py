"""Lost, half-open, slow and abandoned connections: rows are exact, and no resource leaks."""

import os
import socket
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyrocket import (
    Client,
    Connection,
    MessageQueue,
    QueueRange,
    RemoteSink,
    RemoteSource,
    SinkBatch,
    Timeouts,
    decode_slices,
)
from support.broker_process import running
from support.cutting_proxy import cutting
from support.transports import disconnect


@pytest.fixture
def broker(box):
    """Run a broker process for the store of the box; yield the process and the address."""
    box.create(queues=2)
    with running(Path(box.path)) as (process, found):
        yield process, found.listen[0]
    disconnect()


def rows(first, count=20):
    return pa.record_batch({"body": [f"{number}" for number in range(first, first + count)]})


def counted(box, topic):
    return Counter(int(body) for body in box.other(topic).bodies())


def test_lost_replies_neither_duplicate_exactly_once_rows_nor_lose_others(box, broker):
    with cutting(broker[1], every=5) as proxy:
        client = Client(Connection(proxy.address), Timeouts(total=60))
        sink, source = RemoteSink(client), RemoteSource(client)
        for number in range(10):
            sink.append(rows(20 * number), topic="repeated")
            batch = SinkBatch(identity="query", target="", batch=number)
            with sink.stage(batch, partition=0, attempt=0) as stager:
                stager.append(rows(20 * number), topic="once")
                sink.publish(batch, [stager.finish()])
        found = Counter()
        for queue, at in source.bounds(["once"]).items():
            slices = source.slices([QueueRange(queue, at.minimum, at.maximum)])
            for each in decode_slices(slices, ["body"]):
                found.update(int(body) for body in each.column(0).to_pylist())
        client.close()
        assert proxy.cuts >= 5
    assert found == counted(box, "once") == Counter(range(200))
    assert counted(box, "repeated").keys() == set(range(200))


def threads_and_files(process):
    """Return the numbers of threads and open files of a process."""
    folder = Path("/proc", str(process.pid))
    return len([*(folder / "task").iterdir()]), len([*(folder / "fd").iterdir()])


def test_half_open_slow_and_disconnecting_clients_leak_no_resources(box, broker):
    """Clients that send half a request, stop reading, or cancel a call do not affect others."""
    process, address = broker
    box = replace(box, address=address)
    with box.client() as client:
        sink = RemoteSink(client)
        body = pa.record_batch({"body": [b"x" * 100_000] * 60})
        for _ in range(5):
            sink.append(body, topic="large")
        source = RemoteSource(client)
        large = [
            QueueRange(queue, at.minimum, at.maximum)
            for queue, at in source.bounds(["large"]).items()
        ]
        list(source.slices(large))
        before = threads_and_files(process)
        with ExitStack() as stack:
            host, _, port = address.rpartition(":")
            for sent in (b"", b"PRI * HTTP/2.0\r\n", b"GET /metrics HTTP/1.1\r\n\r\n", bytes(5000)):
                half_open = socket.create_connection((host, int(port)))
                stack.enter_context(half_open).sendall(sent)
            for _ in range(10):
                leaving = Client(Connection(address))
                reads = RemoteSource(leaving).slices(large)
                next(reads)
                stack.callback(leaving.close)
                reads.close()
            slow = [RemoteSource(Client(Connection(address))).slices(large) for _ in range(5)]
            for reads in slow:
                next(reads)
            began = time.monotonic()
            assert sum(len(each) for each in source.slices(large)) == 300
            assert sink.append(rows(0), topic="t").rows == 20
            assert time.monotonic() - began < 20
            for reads in slow:
                assert 1 + sum(1 for _ in reads)
                reads.close()
        end = time.monotonic() + 30
        while threads_and_files(process)[1] > before[1] + 6 and time.monotonic() < end:
            time.sleep(0.2)
        threads, files = threads_and_files(process)
    assert files <= before[1] + 6
    assert threads <= before[0] + 16


def test_a_read_over_a_lost_connection_returns_each_row_once(box, broker):
    served = replace(box, address=broker[1])
    sent = [b"%03d" % number + os.urandom(60_000) for number in range(150)]
    served.send(*sent, queue=0)
    # The proxy forwards a block of 4 MiB in 64 to 256 pieces.
    with cutting(broker[1], every=150, within=True) as proxy:
        client = Client(Connection(proxy.address), Timeouts(total=60))
        source = RemoteSource(client)
        for _ in range(3):
            each = QueueRange(MessageQueue("t", "broker-a", 0), 0, 150)
            read = decode_slices(source.slices([each]), ["body"])
            assert [body for batch in read for body in batch.column(0).to_pylist()] == sent
        client.close()
        assert proxy.cuts >= 2
