"""Every call of RocketMQ's protocol: with wrong credentials, without the right, and with it."""

from contextlib import closing

import pytest
from pyrocket import Message, Store
from pyrocket.base.credentials import Credentials
from pyrocket.errors import StorePermissionError
from pyrocket.remote.admin import RemoteAdmin
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.server.gate import NEEDS
from pyrocket.server.messaging.interface import SERVICE, number
from pyrocket.wire.descriptors import service
from support.broker import served
from support.rocketmq_stub import ENDPOINTS, Stub, code_of, message, queue, resource
from support.users import ADMIN, access_of, credentials

CALLERS = {
    "no credentials": (),
    "an empty key": (("authorization", "MQv2-HMAC-SHA1 Credential=, Signature="),),
    "a wrong secret": Credentials(access_key="owner", secret_key="wrong").metadata(),
    "a user of other topics": credentials("stranger").metadata(),
    "the owner": credentials("owner").metadata(),
    "an administrator": credentials("root").metadata(),
}
MINE = {"message_queue": queue("orders"), "group": resource("etl")}
HANDLED = {"topic": resource("orders"), "group": resource("etl")}
ARGUMENTS = {
    "QueryRoute": {"topic": resource("orders"), "endpoints": ENDPOINTS},
    "Heartbeat": {"group": resource("etl")},
    "NotifyClientTermination": {"group": resource("etl")},
    "SendMessage": {"messages": [message(topic="orders")]},
    "RecallMessage": {"topic": resource("orders"), "recall_handle": "djEgb3JkZXJzIGIgMSB4"},
    "EndTransaction": {"topic": resource("orders"), "transaction_id": "x"},
    "PullMessage": MINE,
    "UpdateOffset": MINE,
    "GetOffset": MINE,
    "QueryOffset": {"message_queue": queue("orders")},
    "QueryAssignment": {**HANDLED, "endpoints": ENDPOINTS},
    "ReceiveMessage": {**MINE, "auto_renew": True, "long_polling_timeout": {}},
    "AckMessage": {**HANDLED, "entries": [{"receipt_handle": "x"}]},
    "ChangeInvisibleDuration": HANDLED,
    "ForwardMessageToDeadLetterQueue": HANDLED,
}
NOT_SERVED = {"SyncLiteSubscription"}  # UNSUPPORTED for every user
PRODUCER = {"publishing": {"topics": [resource("orders")]}}
CONSUMER = {
    "subscription": {"group": resource("etl"), "subscriptions": [{"topic": resource("orders")}]}
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    users = access_of(
        tmp_path_factory.mktemp("users"),
        owner=("publish subscribe", "orders", "etl made"),
        stranger=("admin", "others", "others"),
        publisher=("publish", "orders new"),
        root=ADMIN,
    )
    with Store.open(tmp_path_factory.mktemp("store"), create=True) as store:
        store.append(Message(topic="orders", body=b"1"))
        store.groups.create("etl")
        with served(store, access=lambda: users) as found:
            yield found


def test_the_table_of_rights_and_this_matrix_contain_every_call():
    names = {method.name for method in service(SERVICE).methods}
    assert names - NOT_SERVED <= set(NEEDS)
    assert {*ARGUMENTS, "Telemetry"} == names - NOT_SERVED


@pytest.mark.parametrize("caller", CALLERS)
def test_a_call_is_answered_only_if_its_user_has_the_right(address, caller):
    stub = Stub(address, metadata=CALLERS[caller])
    expected = caller not in ("the owner", "an administrator")
    for call, fields in ARGUMENTS.items():
        assert (stub.code(call, **fields) == "UNAUTHORIZED") == expected, call
    for settings in (PRODUCER, CONSUMER):
        with stub.telemetry(**settings) as commands:
            refused = next(commands).status.code == number("Code", "UNAUTHORIZED")
        assert refused == expected
    stub.close()


def test_creating_a_topic_by_a_send_requires_admin(address):
    key = credentials("publisher")
    stub = Stub(address, metadata=key.metadata())
    assert code_of(stub.send(b"1", topic="orders")) == "OK"
    assert code_of(stub.send(b"1", topic="new")) == "UNAUTHORIZED"
    assert stub.code("PullMessage", message_queue=queue("orders")) == "UNAUTHORIZED"
    stub.close()
    root = Stub(address, metadata=CALLERS["an administrator"])
    assert code_of(root.send(b"1", topic="new")) == "OK"
    root.close()


def test_a_subscriber_creates_its_group_by_receiving_from_it(address):
    """The first commit also creates a group, as in RocketMQ. Only CreateGroup requires admin."""
    key = credentials("owner")
    with closing(Client(Connection(address, credentials=key))) as client:
        with pytest.raises(StorePermissionError):
            RemoteAdmin(client).groups.create("made")
        stub = Stub(address, metadata=key.metadata())
        made = {**MINE, "group": resource("made"), "auto_renew": True, "long_polling_timeout": {}}
        assert stub.code("ReceiveMessage", **made) == "OK"
        assert RemoteAdmin(client).groups.get("made").name == "made"
        stub.close()


def test_a_user_cannot_end_a_client_of_another_user(address):
    mine = Stub(address, "same id", CALLERS["the owner"])
    theirs = Stub(address, "same id", CALLERS["a user of other topics"])
    with mine.telemetry(**PRODUCER) as commands:
        next(commands)
        assert theirs.code("NotifyClientTermination") == "OK"
        assert mine.code("Heartbeat") == "OK"
        mine.send(b"1", topic="orders")
        assert mine.code("NotifyClientTermination") == "OK"
        assert list(commands) == []
    mine.close()
    theirs.close()
