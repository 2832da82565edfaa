"""Every call with missing, wrong, insufficient and sufficient credentials; TLS and addresses."""

import logging
from contextlib import closing
from dataclasses import replace

import grpc
import pytest
from pyrocket import Message, MessageQueue, QueueRange, Store
from pyrocket.base.credentials import Credentials, parse, sign
from pyrocket.broker import files
from pyrocket.errors import (
    NotAuthenticatedError,
    PyrocketError,
    StoreNotSharedError,
    StorePermissionError,
    TopicNotFoundError,
    TransportError,
    UnsupportedError,
)
from pyrocket.remote.client import Client, Timeouts
from pyrocket.remote.connection import Connection
from pyrocket.remote.source import RemoteSource
from pyrocket.server.gate import NEEDS, Gate
from pyrocket.server.tls import Certificate
from pyrocket.services.sink.batch import SinkBatch
from pyrocket.values.consuming import (
    ConsumerData,
    GroupStart,
    Heartbeat,
    MessageModel,
    Subscription,
)
from pyrocket.values.lookup import LookupRequest, MessageLocations
from pyrocket.values.message import LogMark, OutgoingMessage
from pyrocket.values.sink import ContentSum, Staged
from pyrocket.values.source import LogPart, RetryPart, TablePart
from pyrocket.wire.channel import method_of
from pyrocket.wire.descriptors import service
from pyrocket.wire.messages import fill
from support.broker import served
from support.certificates import write_certificate
from support.users import ADMIN, access_of, credentials

CALLERS = {
    "no credentials": Credentials(),
    "a wrong secret": Credentials(access_key="owner", secret_key="the stranger's secret"),
    "an unknown user": Credentials(access_key="unknown", secret_key="the owner's secret"),
    "a user of other topics": credentials("stranger"),
    "a user with the right": credentials("owner"),
    "an administrator": credentials("root"),
}
QUEUE = MessageQueue("orders", "broker-a", 0)
RANGE = QueueRange(QUEUE, 0, 1)
LOCATIONS = MessageLocations("orders", 0, b"", b"", b"")
MESSAGE = Message(topic="orders", body=b"")
CONSUMER = ConsumerData("etl", MessageModel.CLUSTERING, "last", {"orders": Subscription()})
STAGED = Staged("", 0, 0, 0, 0, ContentSum(0, 0), "", {"orders": 1}, 0)
ARGUMENTS = {
    "Hello": {},
    "Watch": {},
    "Status": {},
    "Plan": {"topics": ["orders"]},
    "Topics": {},
    "Topic": {"name": "orders"},
    "Bounds": {"topics": ["orders"]},
    "QueueBounds": {"queues": [QUEUE]},
    "Retired": {"topics": ["orders"]},
    "OffsetsAt": {"times_ms": {QUEUE: 0}},
    "Truncations": {"epochs": {"broker-a": 0}, "queues": [QUEUE]},
    "Mark": {"offsets": {QUEUE: 0}},
    "Holds": {"mark": LogMark(0, 0, 0)},
    "Sizes": {"ranges": [RANGE]},
    "SplitAtBytes": {"splits": [(RANGE, [1])]},
    "Locate": {"request": LookupRequest(topics=["orders"], keys=["k"])},
    "Slices": {"ranges": [RANGE]},
    "JoinedSlice": {"ranges": [RANGE]},
    "SlicesAt": {"locations": LOCATIONS},
    "PlanView": {"view": "commitlog"},
    "ReadView": {"part": LogPart(0, 0, False, None, False), "columns": ["body"]},
    "Committed": {"group": "etl"},
    "Commit": {"group": "etl"},
    "Prepare": {"topic": "orders"},
    "Append": {"topics": {"orders": 1}},
    "Stage": {"name": "x", "topics": {"orders": 1}},
    "FinishStaging": {"name": "x"},
    "Publish": {
        "batch": SinkBatch(identity="x", target="", batch=0),
        "staged": [STAGED],
    },
    "Discard": {"staged": [STAGED]},
    "CreateTopic": {"name": "orders"},
    "UpdateTopic": {"name": "orders"},
    "MessageType": {"name": "orders"},
    "DeleteTopic": {"name": "orders"},
    "Groups": {},
    "Group": {"group": "etl"},
    "Lag": {"group": "etl"},
    "Members": {"group": "etl"},
    "CreateGroup": {"group": "etl"},
    "UpdateGroup": {"group": "etl"},
    "ResetGroup": {"group": "etl", "topic": "orders", "rule": "latest"},
    "DeleteGroup": {"group": "etl"},
    "CreateMissing": {"name": "orders"},
    "SendMessages": {"queue": QUEUE, "messages": [OutgoingMessage(MESSAGE, b"1", "id", 1)]},
    "SendHalf": {"group": "g", "queue": QUEUE, "message": OutgoingMessage(MESSAGE, b"1", "i", 1)},
    "EndHalf": {"group": "g", "topic": "orders", "transaction_id": "i", "state": "UNKNOW"},
    "JoinGroups": {"heartbeat": Heartbeat("c", "i", [CONSUMER])},
    "LeaveGroup": {"client_id": "c", "group": "etl"},
    "GroupMembers": {"group": "etl"},
    "CheckFilter": {"topic": "orders", "subscription": Subscription()},
    "LockQueues": {"group": "etl", "client_id": "c", "queues": [QUEUE]},
    "UnlockQueues": {"group": "etl", "client_id": "c", "queues": [QUEUE]},
    "PullQueue": {"queue": QUEUE, "group": "etl", "subscription": Subscription()},
    "GroupStarts": {"group": "etl"},
    "StartOffset": {"group": "etl", "queue": QUEUE, "start": GroupStart(0, 0)},
    "CommittedOffset": {"group": "etl", "queue": QUEUE},
    "CommitOffsets": {"group": "etl", "client_id": "c", "offsets": {QUEUE: 0}},
    "SendBack": {"group": "etl", "queue": QUEUE},
    "Notifications": {"group": "etl"},
    "Retention": {},
    "SetRetention": {},
    "Clean": {},
    "Replicate": {"replica": "id", "name": "r"},
    "Acknowledge": {"replica": "id", "end": 0},
    "Flush": {},
}
FOR_ALL = {
    *(
        "Hello",
        "Watch",
        "Status",
        "Plan",
        "Topics",
        "Groups",
        "Holds",
        "Flush",
        "FinishStaging",
        "Retention",
    ),
}
FOR_ADMINISTRATORS = {
    *("PlanView", "ReadView", "CreateTopic", "UpdateTopic", "DeleteTopic"),
    *("CreateGroup", "UpdateGroup", "ResetGroup", "DeleteGroup", "SetRetention", "Clean"),
    *("Replicate", "Acknowledge"),
}
SERVICES = {
    method.name: of
    for of in ("pyrocket.v1.Broker", "pyrocket.v1.Clients")
    for method in service(of).methods
}
NAMES = [*SERVICES]
NAME_SERVER = [method.name for method in service("pyrocket.v1.NameServer").methods]
"""These calls have a matrix in tests/store/server/nameserver/test_server.py."""
WAIT_S = {"Notifications": 2}
"""Calls that reply only when something happens: time after which they count as admitted."""
ROCKETMQ = [method.name for method in service("apache.rocketmq.v2.MessagingService").methods]


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    return access_of(
        tmp_path_factory.mktemp("users"),
        owner=("publish subscribe", "orders", "etl"),
        reader=("subscribe", "orders"),
        sender=("publish", "orders"),
        stranger=("admin", "others", "others"),
        root=ADMIN,
    )


@pytest.fixture(scope="module")
def serving(tmp_path_factory, users):
    with Store.open(tmp_path_factory.mktemp("store"), create=True) as store:
        store.append(Message(topic="orders", body=b"1", keys=("k",)))
        store.append(Message(topic="others", body=b"2"))
        with served(store, access=lambda: users) as address:
            channel = grpc.insecure_channel(address)
            yield channel, address
            channel.close()


@pytest.fixture
def place(serving):
    return serving[0]


@pytest.fixture
def address(serving):
    """The broker's address. Recreates topics that the test of all calls may have deleted."""
    root = Client(Connection(serving[1], CALLERS["an administrator"]))
    for topic in ("orders", "others"):
        root.call("Prepare", topic=topic, create=True)
    root.close()
    return serving[1]


def status(channel, name, metadata):
    """Return the status of one call; a stream is read up to its first reply."""
    method, request, _ = method_of(name, SERVICES[name])
    sent = fill(request(), ARGUMENTS.get(name, {})).SerializeToString()
    timeout = WAIT_S.get(name, 20)
    try:
        replies = channel.unary_stream(method)(sent, metadata=metadata, timeout=timeout)
        next(replies, None)
        replies.cancel()
    except grpc.RpcError as error:
        is_waiting = name in WAIT_S and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return grpc.StatusCode.OK if is_waiting else error.code()
    return grpc.StatusCode.OK


def expected(name, caller):
    if caller in ("no credentials", "a wrong secret", "an unknown user"):
        return grpc.StatusCode.UNAUTHENTICATED
    needs_more = name in FOR_ADMINISTRATORS and caller == "a user with the right"
    if needs_more or (caller == "a user of other topics" and name not in FOR_ALL):
        return grpc.StatusCode.PERMISSION_DENIED
    return None


def test_the_table_of_rights_and_this_matrix_contain_every_call():
    ours = {name for name in NEEDS if name not in {*ROCKETMQ, *NAME_SERVER}}
    assert set(NAMES) == ours == set(ARGUMENTS)


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("name", NAMES)
def test_a_call_is_answered_only_if_its_user_has_the_right(place, name):
    refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    for caller, user in CALLERS.items():
        found, wanted = status(place, name, user.metadata()), expected(name, caller)
        if wanted is None:
            assert found not in (*refused, grpc.StatusCode.UNKNOWN), caller
        else:
            assert found == wanted, caller


def test_a_plan_has_the_bounds_of_topics_to_which_its_user_may_subscribe(address):
    def planned(user):
        with closing(RemoteSource(Client(Connection(address, credentials(user))))) as source:
            plan = source.plan(["orders", "others", "missing"])
        return {topic.name for topic in plan.topics}, {queue.topic for queue in plan.bounds}

    assert planned("owner") == ({"orders"}, {"orders"})
    assert planned("sender") == ({"orders"}, set())
    assert planned("stranger") == ({"others"}, {"others"})


def test_creating_a_topic_requires_admin_on_it(address):
    owner = Client(Connection(address, CALLERS["a user with the right"]))
    owner.call("Prepare", topic="orders", create=True)
    stranger = Client(Connection(address, CALLERS["a user of other topics"]))
    for client, topic in ((owner, "others2"), (stranger, "orders2")):
        with pytest.raises(StorePermissionError) as caught:
            client.call("Prepare", topic=topic, create=True)
        assert caught.value.code == "PERMISSION_DENIED"
    root = Client(Connection(address, CALLERS["an administrator"]))
    assert root.call("Prepare", topic="made", create=True).value.name == "made"


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%RETRY%others"])
def test_reads_of_system_topics_and_retry_topics_of_other_groups_are_rejected(address, topic):
    client = Client(Connection(address, CALLERS["a user with the right"]))
    with pytest.raises(StorePermissionError):
        client.call("QueueBounds", queues=[MessageQueue(topic, "broker-a", 0)])


def test_a_group_starts_only_in_topics_on_which_its_user_has_a_right(address):
    (orders, others) = (
        ConsumerData("etl", MessageModel.CLUSTERING, "last", {}, {topic: GroupStart()})
        for topic in ("orders", "others")
    )
    owner = CALLERS["a user with the right"].metadata()
    method, request, _ = method_of("JoinGroups", "pyrocket.v1.Clients")
    with grpc.insecure_channel(address) as channel:
        for data, wanted in ((orders, None), (others, grpc.StatusCode.PERMISSION_DENIED)):
            sent = fill(request(), {"heartbeat": Heartbeat("c", "i", [data])}).SerializeToString()
            call = channel.unary_unary(method).with_call
            try:
                call(sent, metadata=owner, timeout=20)
                found = None
            except grpc.RpcError as error:
                found = error.code()
            assert found == wanted


def test_checks_of_a_producer_group_require_only_the_right_to_publish(place):
    method, request, _ = method_of("Notifications", "pyrocket.v1.Clients")
    codes = {}
    for user in ("sender", "reader"):
        metadata = credentials(user).metadata()
        sent = fill(request(), {"producer_group": "any", "client_id": "c"}).SerializeToString()
        with pytest.raises(grpc.RpcError) as caught:
            next(place.unary_stream(method)(sent, metadata=metadata, timeout=1))
        codes[user] = caught.value.code()
    assert codes == {
        "sender": grpc.StatusCode.DEADLINE_EXCEEDED,
        "reader": grpc.StatusCode.PERMISSION_DENIED,
    }


def test_a_producer_cannot_follow_a_group_or_remove_its_members_without_a_right(place):
    method, request, _ = method_of("Notifications", "pyrocket.v1.Clients")
    metadata = credentials("sender").metadata()
    asked = {"producer_group": "any", "group": "etl", "client_id": "c"}
    sent = fill(request(), asked).SerializeToString()
    with pytest.raises(grpc.RpcError) as caught:
        next(place.unary_stream(method)(sent, metadata=metadata, timeout=5))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_commit_requires_a_right_on_each_topic_whose_end_it_tells(address):
    owner = Client(Connection(address, CALLERS["a user with the right"]))
    others = MessageQueue("others", "broker-a", 0)
    with pytest.raises(StorePermissionError, match="others"):
        owner.call("Commit", group="etl", offsets={QUEUE: 0, others: 99})
    owner.close()


def test_discarding_files_without_topics_requires_the_right_to_publish(address):
    given = credentials("reader")
    reader = Client(Connection(address, given))
    staged = replace(STAGED, topics={}, name="a/b")
    with pytest.raises(StorePermissionError):
        reader.call("Discard", staged=[staged])
    reader.close()


NAMING_A_GROUP = {
    "Commit": {"group": "etl", "offsets": {QUEUE: 0}},
    "SendBack": {"group": "etl", "queue": QUEUE},
    "JoinGroups": {"heartbeat": Heartbeat("c", "i", [CONSUMER])},
    "LockQueues": {"group": "etl", "client_id": "c", "queues": [QUEUE]},
}


def test_only_an_administrator_creates_groups_if_the_broker_does_not(tmp_path, users):
    metadata = CALLERS["a user with the right"].metadata()
    with Store.open(tmp_path / "store", create=True) as store:
        store.append(Message(topic="orders", body=b"1"))
        given = {"access": lambda: users, "auto_create_groups": False}
        with served(store, **given) as address, grpc.insecure_channel(address) as channel:
            for name, asked in NAMING_A_GROUP.items():
                method, request, _ = method_of(name, SERVICES[name])
                sent = fill(request(), asked).SerializeToString()
                with pytest.raises(grpc.RpcError, match="pyrocket group create") as caught:
                    channel.unary_unary(method)(sent, metadata=metadata, timeout=20)
                assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            assert "etl" not in store.groups.all()
            assert "%RETRY%etl" not in store.topics.all()


def test_a_batch_without_rows_requires_the_right_to_publish(address):
    batch = SinkBatch(identity="of another", target="orders", batch=9, run="r")
    asked = {"batch": batch, "staged": [], "on_difference": "fail", "on_gap": "accept"}
    reader = credentials("reader")
    with pytest.raises(StorePermissionError):
        Client(Connection(address, reader)).call("Publish", **asked)
    Client(Connection(address, CALLERS["a user with the right"])).call("Publish", **asked)


@pytest.mark.parametrize(
    "asked",
    [
        {"view": "topics"},
        {"view": "topics", "topics": ["orders", "others"]},
        {"view": "groups"},
        {"view": "groups", "group": "of others"},
        {"view": "dlq"},
        {"view": "dlq", "group": "of others"},
        {"view": "retry", "group": "etl"},
        {"view": "commitlog", "topics": ["orders"], "group": "etl"},
        {"part": TablePart("topics")},
        {"part": TablePart("topics", topics=("orders", "others"))},
        {"part": TablePart("groups", topics=("orders",))},
        {"part": TablePart("groups", group="of others")},
        {"part": RetryPart("others", "etl", 0, 0, 1, 0, 0), "topics": ["orders"]},
        {"part": RetryPart("%DLQ%of others", "of others", 0, 0, 1, 0, 0)},
        {"part": LogPart(0, 1, False, ("orders",), False), "topics": ["orders"]},
    ],
)
def test_views_beyond_the_topics_and_groups_of_a_user_are_rejected(address, asked):
    owner = Client(Connection(address, CALLERS["a user with the right"]))
    with pytest.raises(StorePermissionError):
        [*owner.stream("ReadView", **asked)] if "part" in asked else owner.call("PlanView", **asked)
    owner.close()


def test_views_of_a_users_own_topics_and_groups_do_not_require_admin(address):
    owner = Client(Connection(address, CALLERS["a user with the right"]))
    source = RemoteSource(owner)
    owner.call("Commit", group="etl", offsets={QUEUE: 0})
    for view, narrowed in (
        ("topics", {"topics": ["orders"]}),
        ("groups", {"group": "etl"}),
        ("dlq", {"group": "etl"}),
    ):
        for part in source.plan_view(view, **narrowed):
            assert [*source.read_view(part, ["topic"], verify_crc=False)]
    owner.close()


def test_a_call_with_wrong_credentials_is_not_repeated(address):
    client = Client(Connection(address, CALLERS["a wrong secret"]), Timeouts(total=60))
    with pytest.raises(NotAuthenticatedError):
        client.call("Topics")
    assert "secret" not in repr(CALLERS["a wrong secret"])


def test_the_signature_of_rocketmq_clients_is_parsed():
    date, secret = "20220101T000000Z", "secret"
    import hmac

    value = hmac.new(secret.encode(), date.encode(), "sha1").hexdigest().upper()
    header = (
        "MQv2-HMAC-SHA1 Credential=ak//Rocketmq, SignedHeaders=x-mq-date-time, Signature=" + value
    )
    found = parse([("x-mq-date-time", date), ("authorization", header)])
    assert found == ("ak", date.encode(), bytes.fromhex(value))
    assert parse(sign("ak", "s"))[0] == "ak"
    assert parse([("authorization", "MQv2-HMAC-SHA1 Credential=, Signature=")]) is None
    assert parse([]) is None


def tls_client(address, pem, **timeouts):
    trust = Credentials(tls=True, ca=pem.read_bytes())
    return Client(Connection(address, trust), Timeouts(**timeouts))


def test_a_replaced_certificate_is_used_by_new_connections(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(files, "_LOOK_S", -1)
    pem, key = write_certificate(tmp_path)
    certificate = Certificate(str(pem), str(key))
    store = Store.open(tmp_path / "store", create=True)
    with served(store, certificate=certificate) as address:
        first = tls_client(address, pem)
        first.call("Topics")
        other = tmp_path / "other"
        other.mkdir()
        new_pem, new_key = write_certificate(other)
        with pytest.raises(TransportError, match=address):
            tls_client(address, new_pem).call("Topics")
        pem.write_bytes(new_pem.read_bytes())
        with pytest.raises(TransportError), caplog.at_level(logging.ERROR):
            tls_client(address, new_pem).call("Topics")
        assert "remains in use" in caplog.text
        key.write_bytes(new_key.read_bytes())
        client = tls_client(address, new_pem)
        client.call("Topics")
        client.close()
        first.close()


def test_the_first_working_address_is_used(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    with served(store) as address:
        connection = Connection(["127.0.0.1:1", "127.0.0.1:2", address])
        client = Client(connection)
        client.call("Topics")
        assert connection.address == address
        client.close()


def test_calls_of_other_threads_can_complete_on_the_previous_channel():
    connection = Connection(["127.0.0.1:1", "127.0.0.1:2"])
    before = connection.channel
    assert connection.try_next(before)
    with pytest.raises(grpc.RpcError):  # A closed channel raises ValueError.
        before.unary_unary("/pyrocket.v1.Broker/Hello")(b"", timeout=0.2)


def test_an_incompatible_first_reply_is_rejected(tmp_path, monkeypatch, caplog):
    from pyrocket.remote import connection as module

    stores = [Store.open(tmp_path / name, create=True) for name in "ab"]
    with served(stores[0]) as first, served(stores[1]) as second:
        both = Connection([first, second])
        client = Client(both)
        client.call("Topics")
        both.try_next(both.channel)
        with pytest.raises(StoreNotSharedError, match=second):
            client.call("Topics")
        client.close()
        monkeypatch.setattr(module, "system_clock", lambda: 0)
        with caplog.at_level(logging.WARNING):
            Client(Connection(first)).call("Topics")
        assert "clock" in caplog.text
        monkeypatch.setattr(module, "PROTOCOL", 2)
        with pytest.raises(UnsupportedError) as caught:
            Client(Connection(first)).call("Topics")
        assert caught.value.code == "PROTOCOL_NEWER"
        assert first in caught.value.message


def test_the_first_connection_to_an_unreachable_address_fails_soon():
    client = Client(Connection("127.0.0.1:1"), Timeouts(total=60, first=0.3))
    with pytest.raises(PyrocketError, match=r"127\.0\.0\.1:1"):
        client.call("Topics")


def test_errors_do_not_suggest_topics_if_users_are_configured(users):
    error = TopicNotFoundError("there is no topic 'x'.", remedy="Did you mean 'secrets'?")
    assert Gate(lambda: users).without_names(error).remedy == ""
    assert Gate().without_names(error).remedy == error.remedy
