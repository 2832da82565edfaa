"""The strings that a broker keeps for its clients are short."""

import pytest
from pyrocket import Store
from pyrocket.broker.consumers import members
from pyrocket.broker.consumers.members import Members
from pyrocket.errors import BrokerBusyError, InvalidInputError
from pyrocket.filters.message_filter import MAX_EXPRESSION_BYTES
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.server.messaging.telemetry import MAX_SETTINGS_BYTES
from pyrocket.values.consuming import ConsumerData, Heartbeat, MessageModel, Subscription
from support.broker import join_group, served
from support.rocketmq_stub import Stub, code_of, queue, resource

LONG_ID, LONG_TEXT = "x" * 256, "x" * (MAX_EXPRESSION_BYTES + 1)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    store = Store.open(tmp_path_factory.mktemp("store"), create=True)
    store.topics.create("t")
    store.groups.create("g")
    with served(store) as found:
        yield found


@pytest.fixture
def stub(address):
    found = Stub(address)
    yield found
    found.close()


RECEIVE = {
    "group": resource("g"),
    "message_queue": queue("t"),
    "batch_size": 1,
    "invisible_duration": {"seconds": 60},
    "long_polling_timeout": {"seconds": 1},
}


@pytest.mark.parametrize("name", ["Heartbeat", "SendMessage", "ReceiveMessage", "PullMessage"])
def test_a_long_client_id_is_answered_with_a_code(address, name):
    stub = Stub(address, client_id=LONG_ID)
    assert stub.code(name) == "BAD_REQUEST"
    with stub.telemetry(publishing={"topics": []}) as commands:
        assert code_of(next(commands)) == "BAD_REQUEST"
    stub.close()


def test_long_names_and_ids_are_answered_with_codes(stub):
    assert stub.code("QueryRoute", topic=resource("x" * 128)) == "ILLEGAL_TOPIC"
    assert stub.code("Heartbeat", group=resource(LONG_ID)) == "ILLEGAL_CONSUMER_GROUP"
    assert stub.code("ReceiveMessage", **RECEIVE, attempt_id=LONG_ID) == "BAD_REQUEST"
    assert code_of(stub.send(b"1", message_id=LONG_ID)) == "ILLEGAL_MESSAGE_ID"


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("name", ["ReceiveMessage", "PullMessage"])
def test_a_long_expression_is_answered_with_a_code(stub, name, kind):
    expression = {"type": kind, "expression": LONG_TEXT}
    given = RECEIVE if name == "ReceiveMessage" else {"message_queue": queue("t")}
    code = stub.code(name, **given, filter_expression=expression)
    assert code == "ILLEGAL_FILTER_EXPRESSION"


def test_long_settings_are_answered_with_a_code(stub):
    topics = [resource("t" * 100)] * (MAX_SETTINGS_BYTES // 100)
    with stub.telemetry(publishing={"topics": topics}) as commands:
        assert code_of(next(commands)) == "BAD_REQUEST"


def test_a_heartbeat_with_long_strings_is_refused(address):
    client = Client(Connection(address))
    subscribed = ConsumerData("g", MessageModel.CLUSTERING, "last", {"t": Subscription(LONG_TEXT)})
    for beat, code in (
        (Heartbeat(LONG_ID, "i"), "CLIENT_ID_INVALID"),
        (Heartbeat("c", LONG_ID), "CLIENT_ID_INVALID"),
        (Heartbeat("c", "i", (), [LONG_ID]), "CLIENT_ID_INVALID"),
        (Heartbeat("c", "i", [subscribed]), "EXPRESSION_TOO_LONG"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            join(client, beat)
        assert caught.value.code == code
    join_group(address, "g", "c", t="a")
    client.close()


def join(client, beat):
    import grpc
    from pyrocket.wire.channel import method_of
    from pyrocket.wire.errors import carried_error
    from pyrocket.wire.messages import fill

    method, request, _ = method_of("JoinGroups", "pyrocket.v1.Clients")
    sent = fill(request(), {"heartbeat": beat}).SerializeToString()
    try:
        client.connection.channel.unary_unary(method)(sent, timeout=20)
    except grpc.RpcError as error:
        raise carried_error(error, "broker") from None


def test_the_members_of_all_groups_take_up_limited_memory(monkeypatch):
    monkeypatch.setattr(members, "MAX_BYTES", 10_000)
    found = Members()

    def beat(client_id, now_ms=0, expression="a"):
        topics = {"t": Subscription(expression)}
        data = ConsumerData(f"g{client_id}", MessageModel.CLUSTERING, "last", topics)
        return found.heartbeat(Heartbeat(client_id, "i", [data]), now_ms)

    for number in range(7):
        beat(str(number))
    with pytest.raises(BrokerBusyError) as caught:
        beat("7")
    assert caught.value.code == "MEMBERS_FULL"
    assert beat("6")
    with pytest.raises(BrokerBusyError):
        beat("6", expression="a" * 5000)
    found.unregister("0", "g0")
    beat("7")
    beat("8", now_ms=members.EXPIRY_MS)
    assert found.groups(members.EXPIRY_MS) == ["g8"]
