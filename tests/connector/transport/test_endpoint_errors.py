"""The driver reports an unusable broker before any task, with a remedy."""

import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone

import pytest
from pyrocket import Message, Store
from pyrocket.broker import broker as broker_module
from pyrocket.errors import PyrocketError
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.source.stream_planner import empty_offset
from pyspark_pyrocket.transport.path import PathTarget, forget
from support.broker import served
from support.broker_process import running
from support.certificates import write_certificate
from support.transports import disconnect
from support.users import secret_of, write_users

SCHEMA = default_columns(kafka=False, headers=False, text=False)
SOON_S = 10
CHECKPOINT = {
    "brokers": {"broker-a": {"epoch": 0, "store": ""}},
    "offsets": {"t": {"broker-a": {"0": 0}}},
    "topics": {},
    "version": 2,
}
SPARK = {"accessKey": "spark", "secretKey": secret_of("spark")}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """Run a broker with TLS and users; yield its address and the options for TLS."""
    folder = tmp_path_factory.mktemp("secured")
    with Store.open(folder / "store", create=True) as store:
        store.topics.create("t")
    pem, key = write_certificate(folder)
    users = write_users(folder, spark=("publish subscribe", "t"), guest=None)
    arguments = ("--users", users, "--tls-certificate", pem, "--tls-key", key)
    with running(folder / "store", *arguments) as (_, found):
        yield found.listen[0], {"endpoint.tls": "true", "endpoint.ca": str(pem)}
    disconnect()


def check_rejected(options, match):
    """Check that planning a read, a stream and a write fails on the driver, with a remedy."""
    source = DefaultSource({"topic": "t", **options})
    for start in (
        lambda: source.reader(SCHEMA).partitions(),
        lambda: source.streamReader(SCHEMA).initialOffset(),
        lambda: source.writer(SCHEMA, False),
    ):
        check_fails_soon(start, options["endpoint"], match)


def check_fails_soon(start, address, match):
    """Check that a call fails within 10 s, with the address and a remedy."""
    began = time.monotonic()
    with pytest.raises(PyrocketError, match=match) as caught:
        start()
    assert time.monotonic() - began < SOON_S
    assert address in str(caught.value)
    assert caught.value.remedy


def test_tls_and_credentials_are_read_from_the_options(broker, tmp_path):
    address, tls = broker
    secret = tmp_path / "secret"
    secret.write_text(secret_of("spark") + "\n")
    for given in (SPARK, {"accessKey": "spark", "secretKeyFile": str(secret)}):
        options = {"endpoint": address, "topic": "t", **tls, **given}
        reader = DefaultSource(options).reader(SCHEMA)
        assert all(not list(reader.read(part)) for part in reader.partitions())
        assert DefaultSource(options).writer(SCHEMA, False)


def calls(options):
    """Yield the first calls of a batch, of a new and a restarted stream, and of both writes."""
    source = DefaultSource({"topic": "t", **options})
    yield lambda: source.reader(SCHEMA).partitions()
    yield lambda: source.streamReader(SCHEMA).initialOffset()
    yield lambda: source.streamReader(SCHEMA).latestOffset(CHECKPOINT, ReadAllAvailable())
    yield lambda: source.streamReader(SCHEMA).partitions(CHECKPOINT, CHECKPOINT)
    yield lambda: source.writer(SCHEMA, False)
    yield lambda: source.streamWriter(SCHEMA, False)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Run a broker without TLS; yield its address."""
    folder = tmp_path_factory.mktemp("plain")
    with Store.open(folder / "store", create=True) as store:
        store.topics.create("t")
    with running(folder / "store") as (_, found):
        yield found.listen[0]
    disconnect()


def test_an_untrusted_certificate_is_reported_at_once(broker, tmp_path):
    """Also by a restarted query, which waits for a broker that it cannot reach."""
    address, tls = broker
    other, _ = write_certificate(tmp_path, "other")
    options = {"endpoint": address, **tls, **SPARK, "endpoint.ca": str(other)}
    for call in calls(options):
        check_fails_soon(call, address, r"TRANSPORT_FAILED.*CERTIFICATE_VERIFY.*endpoint\.ca")


def test_a_broker_with_tls_is_reported_at_once_to_a_client_without(broker):
    address, _ = broker
    for call in calls({"endpoint": address, **SPARK}):
        check_fails_soon(call, address, r"uses TLS, but the client does not\. Set `endpoint\.tls`")


def test_a_broker_without_tls_is_reported_at_once_to_a_client_with(plain):
    for call in calls({"endpoint": plain, "endpoint.tls": "true"}):
        check_fails_soon(call, plain, r"does not use TLS, but the client does\. Remove `endpoint")


def test_a_restarted_query_names_the_reason_after_its_timeout():
    """It may have been started together with the broker."""
    options = {"endpoint": "127.0.0.1:1", "endpoint.timeout": "2s"}
    _, _, *restarted = calls(options)
    for call in restarted[:2]:
        began = time.monotonic()
        check_fails_soon(call, "127.0.0.1:1", "TRANSPORT_FAILED.*Connection refused")
        assert time.monotonic() - began > 1


@pytest.mark.slow
def test_a_restarted_query_waits_for_its_broker(tmp_path):
    """It waits longer than a new query would."""
    path = tmp_path / "store"
    with Store.open(path, create=True) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        start = empty_offset(PathTarget(str(path)).open_source()).to_json()
        store.append(Message(topic="t", body=b"x"))
    forget(str(path))
    with running(path) as (_, found):
        address = found.listen[0]
    source = DefaultSource({"topic": "t", "endpoint": address, "endpoint.timeout": "60s"})
    with ThreadPoolExecutor() as pool:
        latest = source.streamReader(SCHEMA).latestOffset
        asked = pool.submit(latest, start, ReadAllAvailable())
        with pytest.raises(NotDone):
            asked.result(SOON_S)
        with running(path, "--listen", address):
            assert asked.result(30)["offsets"] == {"t": {"broker-a": {"0": 1}}}
    disconnect()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "accessKey"),
        ({"accessKey": "spark", "secretKey": "wrong"}, "secretKey"),
        ({"accessKey": "guest", "secretKey": secret_of("guest")}, "right"),
    ],
    ids=["no user", "a wrong secret", "no right"],
)
def test_insufficient_credentials_are_reported(broker, given, reason):
    address, tls = broker
    check_rejected({"endpoint": address, **tls, **given}, reason)


def test_an_address_without_a_broker_is_reported():
    """The timeouts are the defaults; a running query would wait for a minute."""
    reader = DefaultSource({"topic": "t", "endpoint": "127.0.0.1:1"}).reader(SCHEMA)
    check_fails_soon(reader.partitions, "127.0.0.1:1", "TRANSPORT_FAILED.*doctor --endpoint")
    check_rejected(
        {"endpoint": "127.0.0.1:1", "endpoint.timeout": "1s"}, "TRANSPORT_FAILED.*doctor"
    )


@pytest.mark.slow
def test_an_address_that_does_not_answer_is_reported():
    """The port accepts connections, but a request is never answered."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        source = DefaultSource({"topic": "t", "endpoint": address})
        read = source.reader(SCHEMA).partitions
        check_fails_soon(read, address, "TRANSPORT_FAILED.*doctor --endpoint")
        disconnect()


def test_a_newer_protocol_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(broker_module, "PROTOCOL", 2)
    with served(Store.open(tmp_path / "store", create=True)) as address:
        check_rejected({"endpoint": address}, "PROTOCOL_NEWER.*same release")
        disconnect()


def test_a_file_that_the_driver_cannot_read_is_reported(broker):
    address, tls = broker
    options = {"endpoint": address, "topic": "t", **tls, "endpoint.ca": "/no/such.pem"}
    with pytest.raises(PyrocketError, match=r"OPTION_INVALID.*'endpoint.ca'.*/no/such.pem"):
        DefaultSource(options).reader(SCHEMA).partitions()


def test_a_query_does_not_continue_in_another_store(broker, tmp_path):
    """The query fails if the endpoint leads to a store other than that of its checkpoint."""
    address, tls = broker
    with Store.open(tmp_path / "other", create=True) as store:
        store.topics.create("t")
    known = DefaultSource({"endpoint": address, "topic": "t", **tls, **SPARK})
    start = known.streamReader(SCHEMA).initialOffset()
    with running(tmp_path / "other") as (_, found):
        source = DefaultSource({"endpoint": found.listen[0], "topic": "t"})
        reader = source.streamReader(SCHEMA)
        check_fails_soon(
            lambda: reader.latestOffset(start, ReadAllAvailable()), found.listen[0], "STORE_CHANGED"
        )
        disconnect()


WITHOUT_GRPC = """
import sys
sys.modules["grpc"] = None
import pyrocket
from pyrocket.client import Producer
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
schema = default_columns(kafka=False, headers=False, text=False)
source = DefaultSource({"topic": "t", "endpoint": "127.0.0.1:1"})
for start in (
    lambda: source.reader(schema).partitions(),
    lambda: source.writer(schema, False),
    lambda: pyrocket.RemoteSource,
    lambda: Producer(endpoint="127.0.0.1:1"),
    lambda: DefaultSource({"topic": "t", "namesrv": "127.0.0.1:1"}).reader(schema).partitions(),
):
    try:
        start()
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_the_error_without_the_extra_has_the_install_command():
    command = [sys.executable, "-c", WITHOUT_GRPC]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    read, write, imported, produced, cluster = done.stdout.splitlines()
    assert read == write
    assert read.startswith("OptionError [OPTION_UNSUPPORTED] Option 'endpoint' needs grpc")
    assert all("pip install '.[endpoint]'" in line for line in (read, imported, produced))
    assert cluster.startswith("TransportError [TRANSPORT_FAILED] the RocketMQ name server at 127.0")
    for line in (imported, produced):
        assert line.startswith("PackageMissingError [PACKAGE_MISSING] a broker and its clients")


def test_an_option_that_the_broker_does_not_support_is_rejected(tmp_path, monkeypatch):
    lacking = tuple(name for name in broker_module.CAPABILITIES if name != "views")
    monkeypatch.setattr(broker_module, "CAPABILITIES", lacking)
    store = Store.open(tmp_path / "store", create=True)
    with served(store) as address:
        source = DefaultSource({"endpoint": address, "view": "scheduled"})
        with pytest.raises(PyrocketError, match="'view' is not supported") as caught:
            source.reader(source.schema()).partitions()
        assert caught.value.code == "OPTION_UNSUPPORTED"
        assert address in caught.value.message
        disconnect()
