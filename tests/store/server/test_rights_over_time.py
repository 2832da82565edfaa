"""Rights that fall while calls wait: nothing is delivered any more, and the calls end."""

import time
from dataclasses import replace

import grpc
import pytest
from pyrocket import Message, MessageQueue, Store
from pyrocket.server.messaging.interface import PACKAGE, SERVICE, new
from pyrocket.values.consuming import Subscription
from pyrocket.wire.channel import method_of
from pyrocket.wire.descriptors import message_class
from pyrocket.wire.messages import fill
from support.broker import served
from support.rocketmq_stub import Stub, code_of, queue, resource
from support.users import ADMIN, access_of, credentials

OWNER = credentials("owner").metadata()
ROOT = credentials("root").metadata()
CLIENTS = "pyrocket.v1.Clients"
ORDERS = {"message_queue": queue("orders"), "group": resource("etl")}


class Users:
    """The users of a broker, which tests change."""

    def __init__(self, folder):
        owner = "publish subscribe", "orders", "etl"
        self.current = access_of(folder, owner=owner, root=ADMIN)

    def remove(self):
        """Remove the owner."""
        secrets = {name: one for name, one in self.current.secrets.items() if name != "owner"}
        self.current = replace(self.current, secrets=secrets)

    def deny(self):
        """Remove the rights of the owner."""
        rules = [rule for rule in self.current.rules if "owner" not in rule.users]
        self.current = replace(self.current, rules=rules)


@pytest.fixture
def users(tmp_path):
    return Users(tmp_path)


@pytest.fixture
def broker(tmp_path, users):
    """Yield the address of a broker, and its store."""
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("orders", read_queues=1, write_queues=1)
        store.groups.create("etl")
        with served(store, access=lambda: users.current) as address:
            yield address, store


def of_ours(channel, store, name, of, **arguments):
    method, request, _ = method_of(name, of)
    sent = fill(request(), arguments).SerializeToString()
    kind = channel.unary_unary if name == "PullQueue" else channel.unary_stream
    call = kind(method)
    return (call.future if name == "PullQueue" else call)(sent, metadata=OWNER, timeout=30)


def watch(channel, store):
    return of_ours(channel, store, "Watch", "pyrocket.v1.Broker")


def notifications(channel, store):
    return of_ours(channel, store, "Notifications", CLIENTS, group="etl", client_id="c")


def pull(channel, store):
    return of_ours(
        channel,
        store,
        "PullQueue",
        CLIENTS,
        queue=MessageQueue("orders", store.broker_name, 0),
        group="etl",
        subscription=Subscription(),
        max_messages=1,
        hold_ms=15_000,
    )


def of_rocketmq(channel, name, *requests):
    sent = iter([one.SerializeToString() for one in requests])
    call = channel.stream_stream(f"/{SERVICE}/{name}")
    return call(sent, metadata=(("x-mq-client-id", "c@1@0@x"), *OWNER), timeout=30)


def receive(channel, store):
    waits = {"auto_renew": True, "long_polling_timeout": {"seconds": 15}, "batch_size": 1}
    return of_rocketmq(channel, "ReceiveMessage", new("ReceiveMessageRequest", **ORDERS, **waits))


def pull_message(channel, store):
    waits = {"long_polling_timeout": {"seconds": 15}, "batch_size": 1}
    return of_rocketmq(channel, "PullMessage", new("PullMessageRequest", **ORDERS, **waits))


def code_of_end(call, name):
    """Return the code with which a call ends, in less than two seconds."""
    began = time.monotonic()
    try:
        replies = [call.result()] if name == "pull" else [*call]
    except grpc.RpcError as error:
        found = error.code().name
    else:
        kind = {"receive": "ReceiveMessage", "pull_message": "PullMessage"}.get(name, name)
        parsed = [message_class(f"{PACKAGE}.{kind}Response").FromString(one) for one in replies]
        (found,) = (code_of(one) for one in parsed if one.WhichOneof("content") == "status")
        assert not [one for one in parsed if one.WhichOneof("content") == "message"]
    assert time.monotonic() - began < 2
    return found


WAITING = {
    "watch": watch,
    "notifications": notifications,
    "pull": pull,
    "receive": receive,
    "pull_message": pull_message,
}


@pytest.mark.parametrize("name", WAITING)
def test_the_calls_of_a_removed_user_end(broker, users, name):
    address, store = broker
    with grpc.insecure_channel(address) as channel:
        call = WAITING[name](channel, store)
        time.sleep(0.5)  # The call waits.
        users.remove()
        expected = "UNAUTHORIZED" if name in ("receive", "pull_message") else "UNAUTHENTICATED"
        assert code_of_end(call, name) == expected


@pytest.mark.parametrize("name", [name for name in WAITING if name != "watch"])
def test_calls_end_when_their_user_loses_the_right(broker, users, name):
    address, store = broker
    with grpc.insecure_channel(address) as channel:
        call = WAITING[name](channel, store)
        time.sleep(0.5)
        users.deny()
        expected = "UNAUTHORIZED" if name in ("receive", "pull_message") else "PERMISSION_DENIED"
        assert code_of_end(call, name) == expected


@pytest.mark.parametrize("change", ["remove", "deny"])
def test_a_telemetry_stream_ends_with_the_rights_of_its_user(broker, users, change):
    consumer = {"group": resource("etl"), "subscriptions": [{"topic": resource("orders")}]}
    stub = Stub(broker[0], metadata=OWNER)
    with stub.telemetry(subscription=consumer) as commands:
        next(commands)
        getattr(users, change)()
        began = time.monotonic()
        assert code_of([*commands][-1]) == "UNAUTHORIZED"
        assert time.monotonic() - began < 2
    stub.close()


def test_a_message_after_the_change_is_received_by_another_user_at_its_first_attempt(broker, users):
    address, store = broker
    stub = Stub(address, metadata=ROOT)
    with grpc.insecure_channel(address) as channel:
        call = receive(channel, store)
        time.sleep(0.5)
        users.deny()
        assert code_of_end(call, "receive") == "UNAUTHORIZED"
        store.append(Message(topic="orders", body=b"1"))
        replies = stub.call("ReceiveMessage", **ORDERS, auto_renew=True, long_polling_timeout={})
    (found,) = (one.message for one in replies if one.WhichOneof("content") == "message")
    assert (found.body, found.system_properties.delivery_attempt) == (b"1", 1)
    stub.close()


def test_calls_of_other_users_go_on(broker, users):
    stub = Stub(broker[0], metadata=ROOT)
    with stub.telemetry(publishing={"topics": [resource("orders")]}) as commands:
        next(commands)
        users.deny()
        time.sleep(0.6)
        assert code_of(stub.send(b"1", topic="orders")) == "OK"
    stub.close()
