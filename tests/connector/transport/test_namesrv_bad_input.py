"""What is wrong with a cluster or its options is named on the driver, within the time-out."""

import socket
import ssl
import threading
import time
from contextlib import contextmanager

import pytest
from pyrocket import Message, Store
from pyrocket.errors import PyrocketError
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from support.broker import served
from support.certificates import write_certificate
from support.rocketmq_cluster import rocketmq
from support.rocketmq_server import Fault, RefusedError
from support.transports import disconnect, namesrv_target

SCHEMA = default_columns(kafka=False, headers=False, text=False)
TIMEOUT_S = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with rocketmq(tmp_path_factory.mktemp("rocketmq")) as made:
        (broker,) = made.brokers
        broker.store.topics.create("t")
        broker.store.topics.create("fixed")
        broker.store.append(Message(topic="t", body=b"x"))
        made.name_servers[0].static_topics.add("fixed")
        yield made


@pytest.fixture
def made(cluster):
    yield cluster
    for server in (*cluster.brokers, *cluster.name_servers):
        server.reset()
    cluster.brokers[0].registered_as = ""
    namesrv_target(cluster, timeout_ms=1000 * TIMEOUT_S).close_source()


@contextmanager
def answering(answer, context=None):
    """Run a server that answers each connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                try:
                    if context is not None:
                        connection = context.wrap_socket(connection, server_side=True)
                    connection.recv(100)
                    connection.sendall(answer)
                except OSError:
                    pass
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def error_of(stream=False, **options):
    """Return the error of a query, which must come within the time-out."""
    given = {"topic": "t", "startingOffsets": "earliest", "endpoint.timeout": f"{TIMEOUT_S}s"}
    begun = time.monotonic()

    def begin():
        source = DefaultSource(given | options)
        if stream:
            source.streamReader(SCHEMA).initialOffset()
        else:
            source.reader(SCHEMA).partitions()

    with pytest.raises(PyrocketError) as caught:
        begin()
    assert time.monotonic() - begun < TIMEOUT_S + 3
    return str(caught.value)


def test_servers_of_other_protocols(made, tmp_path):
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        assert "PROTOCOL_UNKNOWN" in (error := error_of(namesrv=address))
        assert "HTTP" in error
    pem, key = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    with answering(b"", context) as address:
        error = error_of(namesrv=address)
        assert address in error
        assert "TLS" in error
        error = error_of(namesrv=address, **{"endpoint.tls": "true"})
        assert "certificate" in error.lower()
    with served(Store.open(tmp_path / "store", create=True)) as address:
        error = error_of(namesrv=address)
        assert "PROTOCOL_UNKNOWN" in error
        assert "`endpoint`" in error
    error = error_of(namesrv=made.brokers[0].address)
    assert "is a broker, not a name server" in error


@pytest.mark.parametrize("kind", ["name server", "broker"])
def test_a_server_of_rocketmq_as_endpoint(made, kind):
    server = made.name_servers[0] if kind == "name server" else made.brokers[0]
    error = error_of(endpoint=server.address)
    disconnect()
    assert server.address in error
    assert "namesrv" in error


def test_topics_that_cannot_be_read(made):
    servers = made.addresses[0]
    assert "TOPIC_NOT_FOUND" in (error := error_of(namesrv=servers, topic="tt"))
    assert "Did you mean 't'" in error
    assert "mqadmin updateTopic" in error_of(namesrv=servers, topic="entirely-different")
    assert "UNSUPPORTED_TOPIC" in error_of(namesrv=servers, topic="fixed")
    error = error_of(namesrv=servers, topic="%LMQ%t")
    assert "UNSUPPORTED_TOPIC" in error
    assert "'%LMQ%t' is a light queue" in error


@pytest.mark.parametrize(
    ("code", "named"),
    [(105, "'t'"), (202, "'t'"), (11, "'t' for the group 'g'"), (14, "'g'")],
)
def test_the_right_that_is_missing_is_named(made, code, named):
    made.brokers[0].store.groups.create("g")
    for server in (*made.brokers, *made.name_servers):
        server.faults.append(Fault(RefusedError(16, "no permission"), code, 100))
    options = {"startingTimestamp": "-1h"} if code == 11 else {"startingOffsets": "committed"}
    group = {"commitToGroup": "g"} if code == 11 else {"group": "g"}
    error = error_of(code == 11, namesrv=made.addresses[0], **options, **group)
    assert "PERMISSION_DENIED" in error
    assert named in error
    assert "SUB" in error


def test_an_address_that_cannot_be_reached_is_named(made):
    made.brokers[0].registered_as = "127.0.0.1:1"
    error = error_of(namesrv=made.addresses[0])
    assert "broker-a at 127.0.0.1:1" in error
    assert "brokerAddresses" in error


def test_a_checkpoint_of_another_cluster(made):
    given = {"namesrv": made.addresses[0], "topic": "t", "startingOffsets": "earliest"}
    reader = DefaultSource(given).streamReader(SCHEMA)
    start = reader.latestOffset(reader.initialOffset(), None)
    start["brokers"]["broker-a"]["store"] = "rocketmq:elsewhere"
    with pytest.raises(PyrocketError, match=r"STORE_CHANGED.*rocketmq:elsewhere"):
        DefaultSource(given).streamReader(SCHEMA).latestOffset(start, None)
    reader.stop()
