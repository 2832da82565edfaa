"""A connection that falls silent is noticed soon; a new client does not share it."""

import asyncio
import logging
import socket
import time

import grpc
import pytest
from pyrocket import Client, Connection, Message, RemoteSink, Store, Timeouts
from pyrocket.base.credentials import Credentials
from pyrocket.errors import TransportError
from pyrocket.remote import connection
from pyrocket.remote.broker import RemoteBroker
from pyrocket.wire.channel import SERVICE
from support.broker import served
from support.cutting_proxy import cutting


@pytest.fixture
def proxy(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    with served(store) as address, cutting(address, every=0) as found:
        yield found


@pytest.fixture
def client(proxy):
    found = Client(Connection(proxy.address), Timeouts(call=1, connect=1, total=20))
    found.call("Topics")
    yield found
    found.close()


def test_a_call_on_a_silent_connection_is_repeated_on_a_new_one(proxy, client):
    for _ in range(2):
        proxy.silence()
        began = time.monotonic()
        client.call("Topics")
        assert time.monotonic() - began < 5


def test_a_call_that_must_not_be_repeated_fails_and_the_next_call_succeeds(proxy, client):
    sink, message = RemoteSink(client), Message(topic="t", body=b"x")
    sink.send(message, create=True)
    proxy.silence()
    with pytest.raises(TransportError, match="DEADLINE_EXCEEDED"):
        sink.send(message)
    began = time.monotonic()
    client.call("Topics")
    assert time.monotonic() - began < 1


def test_a_stream_finds_the_new_address_of_its_broker(tmp_path):
    path, known = tmp_path / "store", [""]
    with served(Store.open(path, create=True)) as address:
        times = Timeouts(connect=0.2, total=20)
        client = Client(Connection(address, find=lambda: known[0]), times)
        client.call("Topics")
    for _ in range(2):  # The name servers do not know the broker for a while.
        with pytest.raises(TransportError):
            next(client.stream("Watch"))
    with served(Store.open(path)) as known[0]:
        with pytest.raises(TransportError):
            next(client.stream("Watch"))
        assert next(client.stream("Watch"))
        assert client.connection.address == known[0]
        client.close()


def test_a_stream_leaves_an_address_that_does_not_answer(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    with socket.create_server(("127.0.0.1", 0)) as silent, served(store) as address:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        client = Client(Connection(place, find=lambda: address), Timeouts(connect=0.2, total=20))
        with pytest.raises(TransportError, match="DEADLINE_EXCEEDED"):
            next(client.stream("Watch"))
        assert next(client.stream("Watch"))
        client.close()


def test_a_new_client_does_not_share_a_silent_connection(proxy, client):
    proxy.silence()
    other, began = Client(Connection(proxy.address)), time.monotonic()
    other.call("Topics")
    assert time.monotonic() - began < 3
    other.close()


def test_a_client_in_an_event_loop_leaves_a_silent_connection(proxy):
    async def run():
        broker = RemoteBroker(proxy.address, Credentials())
        await broker.hello(5)
        proxy.silence()
        with pytest.raises(TransportError) as caught:
            await broker.hello(0.5)
        assert caught.value.repeat_is_safe
        began = time.monotonic()
        await broker.hello(5)
        assert time.monotonic() - began < 3
        await broker.close()

    asyncio.run(run())


def test_closing_a_client_ends_the_calls_on_a_silent_connection(proxy):
    async def run():
        broker = RemoteBroker(proxy.address, Credentials())
        await broker.hello(5)
        proxy.silence()
        call = asyncio.ensure_future(broker.hello(20))
        with pytest.raises(TransportError):
            await broker.hello(0.5)
        await broker.close()
        done, _ = await asyncio.wait([call], timeout=3)
        assert call in done

    asyncio.run(run())


@pytest.mark.heavy
def test_a_stream_on_a_silent_connection_ends_within_25_seconds(proxy):
    client = Client(Connection(proxy.address))
    stream = client.stream("Watch")
    next(stream)
    proxy.silence()
    began = time.monotonic()
    with pytest.raises(TransportError):
        for _ in stream:
            pass
    assert time.monotonic() - began < 25
    client.close()


@pytest.mark.heavy
def test_a_call_in_an_event_loop_ends_within_25_seconds_of_silence(proxy):
    async def run():
        broker = RemoteBroker(proxy.address, Credentials())
        await broker.hello(5)
        proxy.silence()
        began = time.monotonic()
        with pytest.raises(TransportError):
            await broker.call("Topics", SERVICE, 60)
        assert time.monotonic() - began < 25
        await broker.close()

    asyncio.run(run())


def test_a_broker_accepts_frequent_keepalive_pings(tmp_path):
    options = [
        ("grpc.keepalive_time_ms", 50),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.enable_retries", 0),
    ]
    with (
        served(Store.open(tmp_path / "store", create=True)) as address,
        grpc.insecure_channel(address, options) as channel,
    ):
        watch = channel.unary_stream("/pyrocket.v1.Broker/Watch")(b"", timeout=1.5)
        with pytest.raises(grpc.RpcError) as caught:
            list(watch)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED, caught.value.details()


def test_a_server_that_refuses_keepalive_pings_is_logged(caplog):
    class Refused:
        def code(self):
            return grpc.StatusCode.UNAVAILABLE

        def details(self):
            return "GOAWAY received; Error code: 11; Debug Text: too_many_pings"

    with caplog.at_level(logging.WARNING):
        connection.unreachable("at host:1", "Topics", Refused(), repeat_is_safe=True)
    assert "host:1" in caplog.text
    assert "too_many_pings" in caplog.text
