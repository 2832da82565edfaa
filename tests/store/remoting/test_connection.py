"""Connections: deadlines, lost connections, TLS, forks, and servers of other protocols."""

import os
import socket
import ssl
import threading
import time
from contextlib import contextmanager

import pytest
from pyrocket import Store
from pyrocket.base.credentials import Credentials
from pyrocket.errors import (
    BrokerBusyError,
    OptionError,
    StorePermissionError,
    StoreUnavailableError,
    TransportError,
    UnsupportedError,
)
from pyrocket.remoting.calls import CallKind
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.frames import Frame
from pyrocket.remoting.requests import pull, send, topic_offsets
from support.broker import served
from support.certificates import write_certificate
from support.rocketmq_cluster import rocketmq
from support.rocketmq_server import Fault, RefusedError

SECONDS = 5
ASKED = topic_offsets("t")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with rocketmq(tmp_path_factory.mktemp("rocketmq")) as cluster:
        cluster.brokers[0].store.topics.create("t", read_queues=2, write_queues=2)
        yield cluster


@pytest.fixture
def broker(cluster):
    broker = cluster.brokers[0]
    yield broker
    broker.reset()


_pools = []


@pytest.fixture
def pool(broker):
    return pool_of(broker)


@pytest.fixture(autouse=True)
def no_open_connections():
    yield
    while _pools:
        _pools.pop().close()


def pool_of(server, **credentials):
    return pool_at(server.address, **credentials)


def pool_at(address, **credentials):
    _pools.append(ConnectionPool(address, Credentials(**credentials), "broker broker-a"))
    return _pools[-1]


def asked(pool, *calls, seconds=SECONDS):
    return pool.ask(calls or [ASKED], seconds)


def test_an_address_without_a_server_is_an_error_that_names_it():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(TransportError, match=f"broker broker-a at {address}") as caught:
            asked(pool_at(address))
    assert caught.value.repeat_is_safe


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:0", "host:65536", ":1"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(OptionError, match="host:port"):
        asked(pool_at(address))


def test_a_call_ends_at_its_deadline_and_its_late_answer_is_not_taken_for_another(broker, pool):
    broker.delay_s = 0.5
    start = time.monotonic()
    with pytest.raises(TransportError, match="it took longer than 0") as caught:
        asked(pool, seconds=0.1)
    assert time.monotonic() - start < 0.4
    assert caught.value.repeat_is_safe
    broker.delay_s = 0.0
    assert len(asked(pool)[0]) == 2


@pytest.mark.parametrize("action", ["cut", "lose", "half"])
def test_a_lost_connection_is_an_error_and_the_next_call_connects_again(broker, pool, action):
    broker.faults.append(Fault(action))
    with pytest.raises(TransportError) as caught:
        asked(pool)
    assert caught.value.repeat_is_safe
    assert len(asked(pool)[0]) == 2


def test_a_lost_send_may_have_been_stored(broker, pool):
    message = send("t", 0, b"x", group="producers", born_ms=1)
    before = asked(pool)[0][0].maximum
    broker.faults.append(Fault("lose"))
    with pytest.raises(TransportError) as caught:
        asked(pool, message)
    assert not caught.value.repeat_is_safe
    assert asked(pool)[0][0].maximum == before + 1


def test_other_bytes_than_an_answer_are_an_error(broker, pool):
    broker.faults.append(Fault("garbage"))
    with pytest.raises(UnsupportedError, match="not an answer") as caught:
        asked(pool)
    assert caught.value.code == "PROTOCOL_BROKEN"
    assert len(asked(pool)[0]) == 2


def test_an_answer_that_lacks_something_is_an_error(broker, pool):
    call = CallKind(202, "something", lambda answer: int(answer.fields["none"]), "topic")("t")
    with pytest.raises(UnsupportedError, match="cannot be read") as caught:
        asked(pool, call)
    assert caught.value.code == "PROTOCOL_BROKEN"


def test_a_server_that_closed_an_unused_connection_is_connected_again(broker, pool):
    assert len(asked(pool)[0]) == 2
    broker.kill()
    broker.start()
    assert len(asked(pool)[0]) == 2


def test_one_connection_serves_calls_one_after_the_other(broker, pool):
    before = len(broker.connections)
    for _ in range(5):
        asked(pool)
    assert len(broker.connections) - before <= 1


def test_pipelined_calls_are_one_flight(cluster, broker, pool):
    broker.delay_s = 0.02
    before = cluster.flights
    asked(pool, *(pull("t", 0, 0, 1) for _ in range(16)))
    assert cluster.flights - before == 1


def test_threads_have_their_own_connections(broker, pool):
    broker.delay_s, results = 0.05, []
    threads = [
        threading.Thread(target=lambda: results.append(asked(pool)), name=f"call-{number}")
        for number in range(8)
    ]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert len(results) == 8
    assert time.monotonic() - start < 8 * 0.05 + 1
    assert len(pool._unused) == 2


def test_a_forked_process_does_not_use_the_connections_of_its_parent(pool):
    assert len(asked(pool)[0]) == 2
    (kept,) = pool._unused
    pid = os.getpid()
    pool._pid = pid + 1  # As in a process forked from this one.
    assert len(asked(pool)[0]) == 2
    assert kept not in pool._unused


@pytest.mark.parametrize(
    ("code", "kind", "name"),
    [
        (1, StoreUnavailableError, "BROKER_FAILED"),
        (2, BrokerBusyError, "TOO_MANY_REQUESTS"),
        (215, BrokerBusyError, "TOO_MANY_REQUESTS"),
        (14, BrokerBusyError, "TOO_MANY_REQUESTS"),
        (16, StorePermissionError, "PERMISSION_DENIED"),
        (1500, TransportError, "TRANSPORT_FAILED"),
        (2017, StoreUnavailableError, "BROKER_FAILED"),
    ],
)
def test_a_refusal_says_what_was_asked_and_what_the_server_said(broker, pool, code, kind, name):
    broker.faults.append(Fault(RefusedError(code, "too much to do")))
    with pytest.raises(kind, match=rf"'t' with code {code} .*: too much to do") as caught:
        asked(pool)
    assert caught.value.code == name
    assert caught.value.remedy


# Users


@pytest.mark.parametrize("version", ["4.9", "5.5"])
def test_requests_are_signed_for_the_user(tmp_path, version):
    users = {"spark-user": "secret-key"}
    with rocketmq(tmp_path, version=version, users=users) as cluster:
        broker = cluster.brokers[0]
        broker.store.topics.create("t")
        user = {"access_key": "spark-user", "secret_key": "secret-key"}
        assert asked(pool_of(broker, **user))
        for wrong in ({}, user | {"secret_key": "other-key"}, user | {"access_key": "unknown"}):
            with pytest.raises(StorePermissionError, match="'t'") as caught:
                asked(pool_of(broker, **wrong))
            assert "accessKey" in caught.value.remedy
            assert "secret-key" not in str(caught.value)


# TLS


@pytest.fixture
def certificate(tmp_path):
    return write_certificate(tmp_path)


def server_context(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def encrypted(tmp_path, certificate):
    with rocketmq(tmp_path / "cluster", ssl=server_context(certificate)) as cluster:
        cluster.brokers[0].store.topics.create("t", read_queues=2, write_queues=2)
        yield cluster.brokers[0]


def test_a_connection_with_tls_checks_the_name_of_the_server(encrypted, certificate):
    ca = certificate[0].read_bytes()
    assert len(asked(pool_of(encrypted, tls=True, ca=ca))[0]) == 2
    with pytest.raises(TransportError, match=r"endpoint\.serverName"):
        asked(pool_of(encrypted, tls=True, ca=ca, server_name="other.example"))
    with pytest.raises(TransportError, match="Trust the CA certificate"):
        asked(pool_of(encrypted, tls=True))


def test_long_answers_come_through_tls(encrypted, certificate):
    encrypted.pulled_at_once = 64
    pool = pool_of(encrypted, tls=True, ca=certificate[0].read_bytes())
    body = os.urandom(30_000)
    for _ in range(9):
        asked(pool, send("t", 0, body, group="producers", born_ms=1))
    (found,) = asked(pool, pull("t", 0, 0, 64))
    assert bytes(found.records).count(body) == 9


def test_a_client_with_tls_and_a_server_without_it(broker, certificate):
    with pytest.raises(TransportError, match="Connect without TLS"):
        asked(pool_of(broker, tls=True, ca=certificate[0].read_bytes()), seconds=2)


def test_a_client_without_tls_and_a_server_with_it():
    def alert(connection):
        connection.recv(1000)
        connection.sendall(bytes.fromhex("15 0303 0002 0246"))

    with one_connection(alert) as address, pytest.raises(UnsupportedError) as caught:
        asked(pool_at(address))
    assert caught.value.code == "PROTOCOL_UNKNOWN"
    assert "uses TLS" in str(caught.value)


@contextmanager
def one_connection(serve):
    """Accept one connection and pass it to `serve`; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept():
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept, name="server")
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(SECONDS)


def test_certificates_that_cannot_be_read_are_refused(broker):
    with pytest.raises(OptionError, match="PEM"):
        asked(pool_of(broker, tls=True, ca=b"no certificate"))


# Servers of other protocols


def test_an_http_server_is_named():
    def refuse(connection):
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with one_connection(refuse) as address:
        with pytest.raises(UnsupportedError, match="HTTP") as caught:
            asked(pool_at(address))
        assert caught.value.code == "PROTOCOL_UNKNOWN"


def test_a_broker_of_pyrocket_is_named(tmp_path):
    with served(Store.open(tmp_path / "store", create=True)) as address:
        with pytest.raises(UnsupportedError, match="speaks gRPC") as caught:
            asked(pool_at(address), seconds=5)
        assert caught.value.code == "PROTOCOL_UNKNOWN"
        assert "`endpoint`" in caught.value.remedy


def test_a_name_server_is_no_broker(cluster, monkeypatch):
    (name_server,) = cluster.name_servers
    with pytest.raises(UnsupportedError, match="10911"):
        asked(pool_at(name_server.address))
    monkeypatch.setattr(cluster, "version", "4.9")
    with pytest.raises(TransportError, match="longer than"):
        asked(pool_at(name_server.address), seconds=0.2)


def test_requests_of_the_server_are_ignored(broker, pool):
    """A broker asks its clients, for example for their state; this client has none."""
    with pool.connection() as connection:
        connection.send([ASKED.request], SECONDS)
        other = Frame(40, {"consumerGroup": "g"}, opaque=0)
        connection._frames.append(other)
        assert connection.receive(SECONDS).is_answer
