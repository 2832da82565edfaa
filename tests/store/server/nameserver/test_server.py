"""The calls of a name server over gRPC."""

import random
import signal
import time
from dataclasses import replace

import grpc
import pytest
from pyrocket.base.clock import system_clock
from pyrocket.base.credentials import Credentials
from pyrocket.broker.access import SignatureAge, read_access
from pyrocket.server.gate import NEEDS
from pyrocket.server.messaging.interface import name_of
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.server.nameserver.server import NameServer
from pyrocket.values.routes import Registration, TopicData
from pyrocket.wire.channel import NAME_SERVER, open_channel
from pyrocket.wire.descriptors import message_class, service
from pyrocket.wire.errors import METADATA_KEY
from support import name_server
from support.certificates import write_certificate
from support.commands import run
from support.cutting_proxy import cutting
from support.name_server import BrokerStream, ask, request_of, wait_until
from support.rocketmq_stub import Stub, code_of, resource
from support.stores import FakeClock
from support.users import ADMIN, access_of, credentials, write_users

METHODS = service(NAME_SERVER).methods_by_name
CALLERS = {
    "no credentials": (),
    "a wrong secret": Credentials(access_key="owner", secret_key="wrong").metadata(),
    "a user of other topics": credentials("stranger").metadata(),
    "the owner": credentials("owner").metadata(),
    "an administrator": credentials("root").metadata(),
}
MAY = {
    "Register": {"an administrator"},
    "Routes": {"the owner", "an administrator"},
    "ClusterTopics": {"a user of other topics", "the owner", "an administrator"},
    "Brokers": {"a user of other topics", "the owner", "an administrator"},
    "QueryRoute": {"the owner", "an administrator"},
}


def registration(broker="a", *topics, address="127.0.0.1:8081", cluster="c"):
    topics = topics or (TopicData("orders", 2, 1, 6),)
    return Registration(cluster, broker, 0, address, 1, topics)


@pytest.fixture
def table():
    return RouteTable()


@pytest.fixture
def address(table):
    with name_server.serving(table) as address:
        yield address


@pytest.fixture
def channel(address):
    with grpc.insecure_channel(address) as channel:
        yield channel


def brokers(channel, topic="orders"):
    (route,) = ask(channel, "Routes", topics=[topic])
    return [(one.name, dict(one.addresses)) for one in route.brokers]


def test_a_broker_is_in_routes_while_its_stream_is_open(channel):
    stream = BrokerStream(channel)
    stream.register(registration())
    assert brokers(channel) == [("a", {0: "127.0.0.1:8081"})]
    (route,) = ask(channel, "Routes", topics=["orders"])
    (queues,) = route.queues
    assert (queues.topic.read_queues, queues.topic.write_queues, queues.topic.perm) == (2, 1, 6)
    assert list(ask(channel, "ClusterTopics", cluster="c")) == ["orders"]
    assert [one.name for one in ask(channel, "Brokers")] == ["a"]
    stream.close()
    assert brokers(channel) == []
    assert list(ask(channel, "ClusterTopics")) == []


def test_a_broker_whose_connection_closes_is_removed_at_once(address, channel):
    other = grpc.insecure_channel(address)
    stream = BrokerStream(other)
    stream.register(registration())
    assert brokers(channel)
    other.close()
    wait_until(lambda: brokers(channel) == [])


def test_clients_of_rocketmq_get_the_queues_of_all_brokers_with_their_addresses(address, channel):
    fifo = TopicData("orders", 1, 1, 6, message_type="FIFO")
    streams = [BrokerStream(channel) for _ in range(5)]
    streams[0].register(registration("b", address="[::1]:8082"))
    streams[1].register(registration("a", fifo, address="broker.example:8081"))
    streams[2].register(registration("c", TopicData("clicks", 1, 1, 6)))
    # Replicas have no queues to write to.
    for at, name in enumerate("ac", 3):
        replica = registration(name, fifo, address=f"{name}1.example:8081")
        streams[at].register(replace(replica, broker_id=1))
    stub = Stub(address)
    reply = stub.call("QueryRoute", topic=resource("orders"))
    stub.close()
    assert code_of(reply) == "OK"
    found = [
        (queue.broker.name, queue.id, name_of("Permission", queue.permission))
        for queue in reply.message_queues
    ]
    assert found == [("a", 0, "READ_WRITE"), ("b", 0, "READ_WRITE"), ("b", 1, "READ")]
    endpoints = [queue.broker.endpoints for queue in reply.message_queues]
    places = [(one.scheme, one.addresses[0].host, one.addresses[0].port) for one in endpoints]
    assert places == [(3, "broker.example", 8081), (2, "::1", 8082), (2, "::1", 8082)]
    types = [[name_of("MessageType", one) for one in q.accept_message_types]
             for q in reply.message_queues]  # fmt: skip
    assert types[0] == ["FIFO"]
    assert types[1] == types[2] == ["NORMAL", "FIFO", "DELAY", "TRANSACTION"]


def test_a_topic_of_a_type_of_a_later_release_does_not_break_its_route(address, channel):
    later = TopicData("orders", 1, 1, 6, message_type="HOLOGRAM")
    streams = [BrokerStream(channel) for _ in range(2)]
    streams[0].register(registration("a", later))
    streams[1].register(registration("b", TopicData("orders", 1, 1, 6, message_type="FIFO")))
    stub = Stub(address)
    reply = stub.call("QueryRoute", topic=resource("orders"))
    stub.close()
    assert code_of(reply) == "OK"
    assert [queue.broker.name for queue in reply.message_queues] == ["a", "b"]


def test_a_topic_without_a_live_broker_has_no_route_for_clients_of_rocketmq(address):
    stub = Stub(address)
    assert stub.code("QueryRoute", topic=resource("orders")) == "TOPIC_NOT_FOUND"
    assert stub.code("QueryRoute", topic=resource("not a topic")) == "ILLEGAL_TOPIC"
    stub.close()


def test_the_table_of_rights_and_this_matrix_contain_every_call():
    assert set(MAY) == {*METHODS, "QueryRoute"} <= set(NEEDS)


def outcome(address, call, metadata):
    if call == "QueryRoute":
        stub = Stub(address, metadata=metadata)
        code = stub.code("QueryRoute", topic=resource("orders"))
        stub.close()
        return code != "UNAUTHORIZED"
    fields = {"Routes": {"topics": ["orders"]}}.get(call, {})
    with grpc.insecure_channel(address) as channel:
        try:
            if call == "Register":
                BrokerStream(channel, metadata).register(registration())
            else:
                ask(channel, call, metadata, **fields)
        except grpc.RpcError as error:
            refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            return error.code() not in refused
    return True


def test_a_call_is_answered_only_if_its_user_has_the_right(table, tmp_path):
    stranger = "admin", "others"
    users = access_of(tmp_path, owner=("subscribe", "orders"), stranger=stranger, root=ADMIN)
    names = TopicData("orders", 1, 1, 6), TopicData("others", 1, 1, 6)
    with name_server.serving(table, lambda: users) as address:
        for call, allowed in MAY.items():
            for caller, metadata in CALLERS.items():
                assert outcome(address, call, metadata) == (caller in allowed), (call, caller)
        with grpc.insecure_channel(address) as channel:
            root, owner = CALLERS["an administrator"], CALLERS["the owner"]
            stream = BrokerStream(channel, root)
            stream.register(registration("b", *names))
            assert list(ask(channel, "ClusterTopics", owner)) == ["orders"]
            assert list(ask(channel, "ClusterTopics", root)) == ["orders", "others"]


def test_a_name_belongs_to_the_user_of_the_stream_that_is_open(table, tmp_path):
    users = access_of(tmp_path, alice=ADMIN, mallory=ADMIN)
    alice, mallory = credentials("alice").metadata(), credentials("mallory").metadata()
    with (
        name_server.serving(table, lambda: users) as address,
        grpc.insecure_channel(address) as channel,
    ):
        first = BrokerStream(channel, alice)
        first.register(registration())
        with pytest.raises(grpc.RpcError, match="BROKER_NAME_TAKEN"):
            BrokerStream(channel, mallory).register(registration())
        second = BrokerStream(channel, alice)
        second.register(registration())
        first.close()
        assert [one.name for one in ask(channel, "Brokers", alice)] == ["a"]
        second.close()
        BrokerStream(channel, mallory).register(registration())


def test_a_stream_is_registered_for_longer_than_a_signature_is_valid(table, tmp_path):
    """Its metadata is signed once; the rights of its user count for each registration."""
    clock = FakeClock(system_clock())
    path = write_users(tmp_path, alice=ADMIN)
    found = [read_access(str(path), SignatureAge(900, clock))]
    alice = credentials("alice").metadata()
    with (
        name_server.serving(table, lambda: found[0]) as address,
        grpc.insecure_channel(address) as channel,
    ):
        stream = BrokerStream(channel, alice)
        stream.register(registration())
        clock.now += 3_600_000
        stream.register(registration())
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            BrokerStream(channel, alice).register(registration())
        found[0] = replace(found[0], rules=())
        with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
            stream.register(registration())
        wait_until(lambda: table.brokers() == [])


def silent_for(address, table, seconds):
    """Let the connection of a registered broker fall silent; return how long it is kept."""
    with cutting(address, every=0) as proxy, grpc.insecure_channel(proxy.address) as channel:
        stream = BrokerStream(channel)
        stream.register(registration())
        proxy.silence()
        began = time.monotonic()
        wait_until(lambda: table.brokers() == [], seconds)
        stream.cancel()
    return time.monotonic() - began


def test_a_name_is_free_again_when_the_machine_of_its_broker_does_not_answer(table, monkeypatch):
    monkeypatch.setattr(NameServer, "ping_s", 1)
    monkeypatch.setattr(NameServer, "answer_s", 1)
    with name_server.serving(table) as address:
        assert silent_for(address, table, 15) > 1


@pytest.mark.heavy
def test_a_name_is_free_again_after_20_s(table, address):
    assert silent_for(address, table, 25) > 10


def send_malformed(channel, call, data):
    """Return the error of a call; None if it was answered."""
    try:
        if call == "Register":
            stream = BrokerStream(channel)
            stream.send(data)
            stream.cancel()
        else:
            channel.unary_unary(f"/{NAME_SERVER}/{call}")(data, timeout=20)
    except grpc.RpcError as error:
        return error
    return None


def test_a_malformed_request_is_answered_with_an_error_code(channel):
    rng = random.Random(7)
    valid = {"Register": {"registration": registration()}, "Routes": {"topics": ["t"]}}
    for call in METHODS:
        for _ in range(100):
            data = bytearray(request_of(call, **valid.get(call, {})))
            for _ in range(rng.randrange(4)):
                at = rng.randrange(len(data) + 1)
                data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
            error = send_malformed(channel, call, bytes(data))
            if error is None:
                continue
            known = dict(error.trailing_metadata() or ())
            assert METADATA_KEY in known, (call, data, error)
            assert b"BROKER_FAILED" not in known[METADATA_KEY], (call, data, error)
    error = send_malformed(channel, "Register", b"\xff" * 9)
    assert "REQUEST_MALFORMED" in error.details()
    assert "REGISTRATION_INVALID" in send_malformed(channel, "Register", b"").details()


def health(channel, name=NAME_SERVER):
    request = message_class("grpc.health.v1.HealthCheckRequest")(service=name)
    path = "/grpc.health.v1.Health/Check"
    return channel.unary_unary(path)(request.SerializeToString(), timeout=20)


def test_a_process_serves_over_tls_and_stops_cleanly(tmp_path):
    certificate, key = write_certificate(tmp_path)
    tls = ("--tls-certificate", certificate, "--tls-key", key)
    with name_server.running(*tls) as (process, address):
        channel = open_channel(Credentials(tls=True, ca=certificate.read_bytes()), address)
        stream = BrokerStream(channel)
        stream.register(registration())
        assert brokers(channel)
        assert health(channel) == health(channel, "") == b"\x08\x01"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0  # Although the stream of a broker is open.
        stream.cancel()
        channel.close()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--listen", "0.0.0.0:9876"), "BROKER_EXPOSED"),
        (("--listen", "203.0.113.1:9876", "--insecure"), "BROKER_ADDRESS"),
        (("--tls-key", "x"), "BROKER_CERTIFICATE"),
        (("--users", "missing.toml"), "BROKER_USERS"),
        (("--drain", "soon"), "BROKER_SETTING"),
    ],
)
def test_an_error_at_the_start_is_one_line_and_its_remedy(arguments, code):
    done = run("nameserver", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    error, remedy = done.stderr.splitlines()
    assert f"[{code}]" in error
    assert remedy
