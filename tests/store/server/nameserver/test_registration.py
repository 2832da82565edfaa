"""Brokers that register with name servers, as separate processes."""

import importlib.util
import signal
from contextlib import ExitStack, contextmanager

import pytest
from pyrocket import Store, StoreConfig
from pyrocket.base.credentials import Credentials
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.server.nameserver.registration import RegisteredTopics
from pyrocket.wire.channel import open_channel
from support import broker_process, name_server, rocketmq_python
from support.certificates import write_certificate
from support.commands import run
from support.name_server import ask, wait_until
from support.rocketmq_stub import Stub, resource
from support.users import ADMIN, credentials, secret_of, write_users

NO_CREDENTIALS = Credentials()
TOPIC = rocketmq_python.TOPIC


def brokers(address, topic=TOPIC, credentials=NO_CREDENTIALS):
    with open_channel(credentials, address) as channel:
        (route,) = ask(channel, "Routes", credentials.metadata(), topics=[topic])
    return {one.name: one.addresses[0] for one in route.brokers}


@pytest.fixture
def make(tmp_path):
    """Return a function that creates a store of one broker with the topic."""

    def make(name, *topics):
        path = tmp_path / name
        with Store.open(path, create=True, config=StoreConfig(broker_name=name)) as store:
            for topic in topics or (TOPIC,):
                store.topics.create(topic)
        return path

    return make


@contextmanager
def client_of(found):
    client = Client(Connection(found.listen[0]))
    yield client
    client.close()


def test_routes_remain_correct_if_one_of_two_brokers_and_of_two_name_servers_is_killed(make):
    with ExitStack() as stack:
        first, one = stack.enter_context(name_server.running())
        _, two = stack.enter_context(name_server.running())
        flags = ("--nameserver", f"{one};{two}")
        killed, a = stack.enter_context(broker_process.running(make("a"), *flags))
        _, b = stack.enter_context(broker_process.running(make("b"), "-n", one, "-n", two))
        both = {"a": a.listen[0], "b": b.listen[0]}
        for address in (one, two):
            wait_until(lambda address=address: brokers(address) == both)
        killed.send_signal(signal.SIGKILL)
        for address in (one, two):
            wait_until(lambda address=address: brokers(address) == {"b": both["b"]}, 5)
        first.send_signal(signal.SIGKILL)
        first.wait(10)
        assert brokers(two) == {"b": both["b"]}
        # A name server that starts again knows the broker within seconds.
        port = one.rpartition(":")[2]
        _, again = stack.enter_context(name_server.running(port=port))
        wait_until(lambda: brokers(again) == {"b": both["b"]}, 20)


def test_a_change_of_topics_is_registered_at_once_and_a_clean_stop_unregisters(make):
    with name_server.running() as (_, address):
        flags = ("--nameserver", address, "--advertise", "broker.example:1", "--drain", "5s")
        with broker_process.running(make("a"), *flags) as (process, found):
            wait_until(lambda: brokers(address) == {"a": "broker.example:1"})
            with client_of(found) as client:
                client.call("Prepare", topic="created", create=True)
                wait_until(lambda: brokers(address, "created"), 5)
                client.call("DeleteTopic", name="created")
                wait_until(lambda: not brokers(address, "created"), 5)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        assert brokers(address) == {}


def test_a_second_primary_and_a_broker_of_another_server_do_not_start(make, tmp_path):
    with name_server.running() as (_, address):
        flags = ("--nameserver", address, "--listen", "127.0.0.1:0")
        with broker_process.running(make("a"), *flags) as (_, found):
            wait_until(lambda: brokers(address), 20)
            second = run("broker", tmp_path / "other", *flags, "--broker-name", "a")
            assert second.exit_code == 2
            assert "[BROKER_NAME_TAKEN]" in second.stderr
            assert found.listen[0] in second.stderr
            assert brokers(address) == {"a": found.listen[0]}
            other = run("broker", make("b"), "--listen", "127.0.0.1:0", "-n", found.listen[0])
            assert other.exit_code == 2
            assert "is not a name server" in other.stderr


def test_a_broker_starts_without_a_reachable_name_server(make):
    with name_server.running() as (process, address):
        process.kill()
        process.wait(10)
    flags = ("--nameserver", address)
    with broker_process.running(make("a"), *flags) as (_, found):
        with client_of(found) as client:
            assert client.call("Topic", name=TOPIC).value.name == TOPIC
        with name_server.running(port=address.rpartition(":")[2]):
            wait_until(lambda: brokers(address) == {"a": found.listen[0]}, 20)


def test_a_broker_registers_over_tls_with_its_credentials(make, tmp_path):
    certificate, key = write_certificate(tmp_path)
    users, secret = write_users(tmp_path, broker=ADMIN, reader=None), tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(secret_of("broker") + "\n")
    server = ("--tls-certificate", certificate, "--tls-key", key, "--users", users)
    trust = {"tls": True, "ca": certificate.read_bytes()}
    root = credentials("broker", **trust)
    with name_server.running(*server) as (_, address):
        flags = ("--nameserver", address, "--nameserver-ca", certificate)
        flags += ("--nameserver-access-key", "broker", "--nameserver-secret-key-file", secret)
        with broker_process.running(make("a"), *flags) as (_, found):
            registered = {"a": found.listen[0]}
            wait_until(lambda: brokers(address, credentials=root) == registered, 20)
        secret.write_text("another secret")
        refused = run("broker", make("b"), "--listen", "127.0.0.1:0", *flags)
        assert refused.exit_code == 2
        assert "[UNAUTHENTICATED]" in refused.stderr


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("-n", "host"), "ADDRESS_INVALID"),
        (("-n", "h:1", "--advertise", "0.0.0.0:8081"), "ADVERTISE_UNSPECIFIED"),
        (("-n", "h:1", "--listen", "0.0.0.0:8081", "--insecure"), "ADVERTISE_UNSPECIFIED"),
        (("-n", "h:1", "--advertise", "host"), "ADDRESS_INVALID"),
        (("--advertise", "host"), "ADDRESS_INVALID"),
        (("-n", "h:1", "--nameserver-ca", "missing.pem"), "BROKER_SETTING"),
    ],
)
def test_a_broker_with_invalid_name_server_settings_does_not_start(tmp_path, flags, code):
    done = run("broker", tmp_path / "store", *flags)
    assert done.exit_code == 2
    assert f"[{code}]" in done.stderr.splitlines()[0]
    assert not (tmp_path / "store").exists()


def assigned(found, port):
    """Return the port in the assignment for a client whose endpoint has this port."""
    endpoints = {"scheme": 1, "addresses": [{"host": "127.0.0.1", "port": port}]}
    stub = Stub(found.listen[0])
    arguments = {"topic": resource(TOPIC), "group": resource("etl"), "endpoints": endpoints}
    reply = stub.call("QueryAssignment", **arguments)
    stub.close()
    (assignment,) = reply.assignments
    return assignment.message_queue.broker.endpoints.addresses[0].port


def test_clients_that_send_the_name_servers_address_are_assigned_the_brokers_address(make):
    with (
        name_server.running() as (_, address),
        broker_process.running(make("a"), "-n", address) as (_, found),
    ):
        own, other = (int(one.rpartition(":")[2]) for one in (found.listen[0], address))
        assert assigned(found, other) == assigned(found, own) == own
    with broker_process.running(make("b")) as (_, found):
        assert assigned(found, 9876) == 9876


def test_a_message_type_is_registered(make):
    path = make("a")
    with Store.open(path) as store:
        store.topics.set_message_type(TOPIC, "FIFO")
        topics = RegisteredTopics(store, "c", "a:1")
        first = topics.current()
        assert {one.name: one.message_type for one in first.topics}[TOPIC] == "FIFO"
        assert topics.current() is first
        store.topics.set_message_type(TOPIC, "DELAY")
        assert topics.current().data_version > first.data_version


@pytest.mark.heavy
@pytest.mark.skipif(
    importlib.util.find_spec("rocketmq") is None, reason="needs rocketmq-python-client"
)
def test_the_python_client_of_rocketmq_sends_and_receives_through_a_name_server(make, tmp_path):
    with ExitStack() as stack:
        _, address = stack.enter_context(name_server.running())
        for name in ("a", "b"):
            stack.enter_context(broker_process.running(make(name), "-n", address))
        wait_until(lambda: set(brokers(address)) == {"a", "b"}, 20)
        exchanged = rocketmq_python.start("exchange", address, tmp_path)
        assert rocketmq_python.result(exchanged) == ["hello"]
