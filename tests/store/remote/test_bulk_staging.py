"""Batches are staged at a broker and published exactly once, despite repeated and lost calls."""

import itertools
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import grpc
import pyarrow as pa
import pytest
from pyrocket import SinkBatch, Store
from pyrocket.errors import (
    MessageError,
    SinkError,
    StoreUnavailableError,
    TopicNotFoundError,
    TransportError,
)
from pyrocket.formats.staged_block import INDEX_LENGTH_BYTES, encode_index
from pyrocket.remote import sink as remote_sink
from pyrocket.remote.client import Client, Connection, Timeouts
from pyrocket.remote.sink import RemoteSink
from pyrocket.services.sink.uploads import _Journal
from pyrocket.tools.verify.verify import verify
from support.broker import served

BATCH = SinkBatch(identity="query", target="orders", batch=0, run="first")


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        yield store


@pytest.fixture
def sink(store):
    with served(store) as address:
        client = Client(Connection(address), Timeouts(total=5))
        yield RemoteSink(client)
        client.close()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(remote_sink, "BLOCK_BYTES", 2000)


def rows(first=0, count=50, **more):
    bodies = [b"%d" % row + b" " * (row % 7 * 100) for row in range(first, first + count)]
    return pa.record_batch({"body": pa.array(bodies, pa.binary()), **more})


def staged(sink, batch=BATCH, *, first=0, partition=0, topic="orders", times=2):
    with sink.stage(batch, partition=partition, attempt=0) as stager:
        for each in range(times):
            stager.append(rows(first + 50 * each), topic=topic)
        return stager.finish()


def bodies(store, topic="orders"):
    return sorted(int(message.body) for message in store.messages(topic))


def files(store):
    folder = store.path / "pyrocket" / "staging"
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "free" and path.name != "cleaned"
    ]


def test_a_remotely_published_batch_equals_a_locally_published_batch(store, sink, tmp_path):
    parts = [staged(sink, partition=0), staged(sink, first=100, partition=1)]
    assert "orders" not in store.topics.all()
    published = sink.publish(BATCH, parts)
    assert (published.rows, published.dropped) == (200, False)
    assert bodies(store) == [*range(200)]
    assert set(verify(store.path).counts) <= {"NOT_CLOSED"}
    with Store.open(tmp_path / "local", create=True) as local:
        own = local.sink
        again = own.publish(BATCH, [staged(own, partition=0), staged(own, first=100, partition=1)])
        assert (again.rows, again.bytes) == (published.rows, published.bytes)
        assert sorted(local.offsets("orders")) == sorted(store.offsets("orders"))


class Lost(grpc.RpcError):
    """The error of a call whose connection was lost."""

    def __init__(self, code=grpc.StatusCode.UNAVAILABLE):
        self._code = code

    def code(self):
        return self._code

    def details(self):
        return "cut"

    def trailing_metadata(self):
        return ()


class Cut:
    """A channel that loses every second call, before or after the broker executes it."""

    def __init__(self, channel, *, after):
        self.channel, self.after, self.count = channel, after, itertools.count(1)

    def unary_unary(self, method):
        call = self.channel.unary_unary(method)

        if method.endswith("/Hello"):
            return call

        return self._losing(call)

    def stream_unary(self, method):
        cut = self._losing(self.channel.stream_unary(method))
        return SimpleNamespace(
            future=lambda *request, **how: SimpleNamespace(
                result=partial(cut, *request, **how), cancel=lambda: None
            )
        )

    def _losing(self, call):
        def cut(request, timeout, metadata):
            lost = next(self.count) % 2 == 0
            if lost and not self.after:
                raise Lost(grpc.StatusCode.CANCELLED)  # As a broker does during shutdown.
            reply = call(request, timeout=timeout, metadata=metadata)
            if lost:
                raise Lost
            return reply

        return cut


@pytest.mark.parametrize("after", [False, True])
def test_lost_calls_and_replies_neither_lose_nor_duplicate_rows(store, sink, monkeypatch, after):
    channel = Cut(sink.client.connection.channel, after=after)
    monkeypatch.setattr(Connection, "channel", channel)
    monkeypatch.setattr("pyrocket.base.clock.FIRST_S", 0.001)
    for number in range(2):
        batch = SinkBatch(identity="query", target="orders", batch=number, run="first")
        parts = [
            staged(sink, batch, first=200 * number + 100 * each, partition=each) for each in (0, 1)
        ]
        sink.publish(batch, parts)
    assert bodies(store) == [*range(400)]
    for name in ("a", "b"):
        result = sink.append(rows(1000), topic="once", repeat_id=name)
        assert sink.append(rows(1000), topic="once", repeat_id=name).rows == result.rows == 50
    assert bodies(store, "once") == sorted([*range(1000, 1050)] * 2)


def test_rows_are_duplicated_with_the_same_ids_after_a_lost_reply(store, sink, monkeypatch):
    sink.prepare("orders")
    sink.append(rows(count=1), topic="orders")
    channel = Cut(sink.client.connection.channel, after=True)
    monkeypatch.setattr(Connection, "channel", channel)
    monkeypatch.setattr("pyrocket.base.clock.FIRST_S", 0.001)
    for first in range(1, 5):
        sink.append(rows(first, count=1), topic="orders")
    ids = {}
    for message in store.messages("orders"):
        ids.setdefault(int(message.body), []).append(message.properties["UNIQ_KEY"])
    assert sorted(ids) == [*range(5)]
    assert all(len(set(each)) == 1 for each in ids.values())
    assert max(map(len, ids.values())) == 2


def test_an_upload_resumes_after_a_restart_of_the_broker(tmp_path, monkeypatch):
    monkeypatch.setattr("pyrocket.services.sink.staged_file.SEGMENT_BYTES", 10_000)
    with Store.open(tmp_path / "store", create=True) as store, served(store) as address:
        client = Client(Connection(address), Timeouts(total=20))
        sink = RemoteSink(client)
        stager = sink.stage(BATCH, partition=0, attempt=0).__enter__()
        stager.append(rows(count=100), topic="orders")
        stager._file._wait()
        port = int(address.rpartition(":")[2])
    with Store.open(tmp_path / "store") as store, served(store, port=port):
        stager.append(rows(100, count=100), topic="orders")
        assert sink.publish(BATCH, [stager.finish()]).rows == 200
        assert bodies(store) == [*range(200)]
        assert not files(store)
        client.close()


def test_blocks_are_written_once_and_in_order(store, sink, monkeypatch):
    calls = []
    call = Client.call

    def recorded(client, name, /, **arguments):
        calls.append((name, arguments))
        return call(client, name, **arguments)

    monkeypatch.setattr(Client, "call", recorded)
    part = staged(sink)
    blocks = [arguments for name, arguments in calls if name == "Stage"]
    assert [block["number"] for block in blocks] == [*range(len(blocks))]
    assert len(blocks) > 5
    for block in (*blocks, blocks[0]):
        sink.client.call("Stage", **block)
    with pytest.raises(SinkError) as caught:
        sink.client.call("Stage", **{**blocks[0], "number": len(blocks) + 1})
    assert caught.value.code == "UPLOAD_LOST"
    with pytest.raises(SinkError):
        sink.client.call("FinishStaging", name=part.name, blocks=len(blocks) - 1)
    sink.client.call("FinishStaging", name=part.name, blocks=len(blocks))
    sink.publish(BATCH, [part])
    assert bodies(store) == [*range(100)]


def test_names_outside_the_staging_area_are_rejected(sink):
    part, block = staged(sink), {"topics": {}, "records": []}
    for name in ("", "x", "free/x", "../x", "a" * 32 + "/../" + "0" * 20):
        bad = replace(part, name=name or "/")
        for call in (
            partial(sink.client.call, "Stage", name=name, number=0, **block),
            partial(sink.client.call, "FinishStaging", name=name, blocks=1),
            partial(sink.publish, BATCH, [bad]),
            partial(sink.discard, [bad]),
        ):
            with pytest.raises(SinkError) as caught:
                call()
            assert caught.value.code == "STAGED_BROKEN", name


def test_a_batch_that_differs_from_the_staged_rows_is_rejected(store, sink):
    part = staged(sink)
    for change in (
        *({"topics": topics} for topics in ({}, {"orders": 1}, {"bills": 4})),
        *({"rows": 99}, {"checksum": 1}, {"file_bytes": 100}),
    ):
        with pytest.raises((SinkError, TopicNotFoundError)):
            sink.publish(BATCH, [replace(part, **change)])
        assert not any(bodies(store, topic) for topic in store.topics.all()), change
    sink.publish(BATCH, [part])
    assert bodies(store) == [*range(100)]


def test_a_forged_index_inside_a_message_is_rejected(store, sink):
    store.topics.create("secret")
    (block,) = _Journal(path_of(store, staged_message(sink, b"")).with_suffix(".uploaded")).entries
    forged, checksum = encode_index([replace(block, topic="secret")])
    index = forged + len(forged).to_bytes(INDEX_LENGTH_BYTES, "little")
    part = staged_message(sink, index)
    length = path_of(store, part).read_bytes().index(index) + len(index)
    with pytest.raises(SinkError) as caught:
        sink.publish(BATCH, [replace(part, file_bytes=length, checksum=checksum)])
    assert caught.value.code == "STAGED_BROKEN"
    assert "differs from the completed upload" in caught.value.message


def test_files_that_a_repeated_call_finds_half_deleted_are_no_error(store, sink, monkeypatch):
    """The first call has published the batch, and deletes its files while the second one starts."""
    part, path = staged(sink), Path.exists
    sink.publish(BATCH, [part])
    monkeypatch.setattr(Path, "exists", lambda file: file.name in part.name or path(file))
    assert sink.publish(BATCH, [part]).dropped
    assert bodies(store) == [*range(100)]


def test_publishing_rejects_files_that_other_queries_staged(store, sink):
    other = SinkBatch(identity="mine", target="orders", batch=0)
    victims, mine = staged(sink), staged(sink, replace(BATCH, batch=5))
    with pytest.raises(SinkError) as caught:
        sink.publish(other, [mine])
    assert caught.value.code == "STAGED_BROKEN"
    sink.publish(BATCH, [victims])


def test_a_block_for_a_completed_file_is_rejected(store, sink):
    part = staged(sink)
    blocks = len(_Journal(path_of(store, part).with_suffix(".uploaded")).blocks)
    with pytest.raises(SinkError) as caught:
        sink.client.call("Stage", name=part.name, number=blocks, topics={}, records=[])
    assert caught.value.code == "UPLOAD_LOST"


def path_of(store, part):
    return store.path / "pyrocket" / "staging" / part.name


def staged_message(sink, body):
    with sink.stage(BATCH, partition=0, attempt=0) as stager:
        stager.append(pa.record_batch({"body": pa.array([body], pa.binary())}), topic="orders")
        return stager.finish()


def test_a_malformed_block_is_rejected(store, sink):
    part = staged(sink)
    with pytest.raises(MessageError):
        sink.client.call("Stage", name=part.name, number=0, topics={"orders": 4}, records=[b"x"])


def test_an_abandoned_upload_is_deleted(store, sink):
    with sink.stage(BATCH, partition=0, attempt=0) as stager:
        stager.append(rows(count=100), topic="orders")
        stager._file._wait()
        assert files(store)
    assert not files(store)
    part = staged(sink)
    assert files(store)
    sink.discard([part])
    sink.discard([part])
    assert not files(store)
    with pytest.raises(StoreUnavailableError):
        sink.publish(BATCH, [part])


def test_deleting_staged_files_during_an_upload_is_detected(store, sink):
    with sink.stage(BATCH, partition=0, attempt=0) as stager:
        stager.append(rows(count=100), topic="orders")
        stager._file._wait()
        for path in files(store):
            os.unlink(path)
        with pytest.raises(SinkError) as caught:
            stager.finish()
    assert caught.value.code == "UPLOAD_LOST"


def test_the_size_of_staged_rows_is_limited(store, sink):
    store.sink.uploads.limit(20_000)
    with pytest.raises(StoreUnavailableError) as caught:
        staged(sink, times=20)
    assert caught.value.code == "STAGING_FULL"
    assert not files(store)


def test_the_error_names_a_stopped_broker(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store, served(store) as address:
        sink = RemoteSink(Client(Connection(address)).within(0.3))
    with pytest.raises(TransportError, match=address):
        sink.publish(BATCH, [])
    shutil.rmtree(tmp_path / "store")
    sink.close()
