"""The calls of producers in RocketMQ's protocol: routes, sends, transactions, telemetry."""

import gzip
import time
import zlib

import pytest
from pyrocket import Store
from pyrocket.server.messaging.interface import number
from support.broker import served
from support.name_server import wait_until
from support.rocketmq_stub import ENDPOINTS, Stub, code_of, message, queue, resource

OK = number("Code", "OK")
TRANSACTION = number("MessageType", "TRANSACTION")
COMMIT, ROLLBACK = 1, 2
CHECKS = {"transaction_timeout": 0.2, "transaction_check_interval": 0.3}


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    store = Store.open(tmp_path_factory.mktemp("store"), create=True)
    with served(store, **CHECKS) as address:
        yield store, address


@pytest.fixture
def store(serving):
    return serving[0]


@pytest.fixture
def stub(serving):
    found = Stub(serving[1])
    yield found
    found.close()


def stored(store, topic):
    return list(store.messages(topic))


def test_a_route_has_each_queue_with_the_address_of_the_request(store, stub):
    store.topics.create("routes", read_queues=3, write_queues=2)
    store.topics.set_message_type("routes", "FIFO")
    reply = stub.call("QueryRoute", topic=resource("routes"), endpoints=ENDPOINTS)
    assert reply.status.code == OK
    assert [(one.id, one.permission) for one in reply.message_queues] == [(0, 4), (1, 4), (2, 2)]
    for one in reply.message_queues:
        assert (one.topic.name, one.broker.name, one.broker.id) == ("routes", "broker-a", 0)
        assert one.broker.endpoints.addresses[0].port == 8081
        assert [*one.accept_message_types] == [number("MessageType", "FIFO")]


def test_a_topic_without_a_type_accepts_all_types(store, stub):
    store.topics.create("untyped")
    reply = stub.call("QueryRoute", topic=resource("untyped"), endpoints=ENDPOINTS)
    assert [*reply.message_queues[0].accept_message_types] == [1, 2, 3, 4]


def test_a_send_creates_a_topic_but_a_route_does_not(store, stub):
    route = stub.call("QueryRoute", topic=resource("made"), endpoints=ENDPOINTS)
    assert len(route.message_queues) == 4
    assert "made" not in store.topics.all()
    assert code_of(stub.send(b"1", topic="made")) == "OK"
    assert "made" in store.topics.all()


def test_no_call_creates_a_topic_without_auto_create_topics(tmp_path):
    from pyrocket import StoreConfig

    config = StoreConfig(auto_create_topics=False)
    store = Store.open(tmp_path, create=True, config=config)
    with served(store) as address:
        stub = Stub(address)
        route = stub.call("QueryRoute", topic=resource("none"), endpoints=ENDPOINTS)
        assert code_of(route) == code_of(stub.send(b"1", topic="none")) == "TOPIC_NOT_FOUND"
        wanted = "CODE: 17  DESC: No topic route info in name server for the topic: none"
        assert route.status.message == wanted
        assert "none" not in store.topics.all()
        stub.close()


def test_a_message_is_stored_as_it_was_sent(store, stub):
    reply = stub.send(
        b"body",
        topic="sent",
        message_id="01" + "AB" * 16,
        tag="a",
        keys=["k1", "k 2"],
        born_host="10.1.2.3:5000",
        born_timestamp={"seconds": 1_700_000_000, "nanos": 5_000_000},
        trace_context="00-trace",
        properties={"color": "blue", "empty": ""},
    )
    (entry,) = reply.entries
    assert entry.message_id == entry.transaction_id == "01" + "AB" * 16
    assert entry.recall_handle == ""
    (found,) = stored(store, "sent")
    assert (found.body, found.tags, found.keys) == (b"body", "a", ("k1", "k", "2"))
    assert found.properties["UNIQ_KEY"] == entry.message_id
    assert found.properties["TRACE_CONTEXT"] == "00-trace"
    assert found.properties["color"] == "blue"
    assert (found.born_host, found.born_timestamp) == ("10.1.2.3:5000", 1_700_000_000_005)
    assert entry.offset == found.queue_offset
    assert store.lookup.query("sent", entry.message_id) == [found]


def test_the_born_host_is_the_address_of_the_connection_by_default(store, stub):
    stub.send(b"1", topic="hosts")
    stub.send(b"2", topic="hosts", born_host="[2001:db8::1]:80")
    hosts = {one.body: one.born_host for one in stored(store, "hosts")}
    assert hosts[b"1"].startswith("127.0.0.1:")
    assert hosts[b"2"] == "[2001:db8:0:0:0:0:0:1]:80"


def test_messages_of_one_request_are_appended_together(store, stub):
    reply = stub.send(b"1", b"2", b"3", topic="several", message_group="g")
    assert [one.offset for one in reply.entries] == [0, 1, 2]
    assert len({one.queue_id for one in stored(store, "several")}) == 1


def test_messages_of_one_message_group_share_a_queue_and_other_messages_are_spread(store, stub):
    for number_ in range(8):
        stub.send(b"g", topic="grouped", message_group="one")
        stub.send(b"%d" % number_, topic="spread")
    assert len({one.queue_id for one in stored(store, "grouped")}) == 1
    assert len({one.queue_id for one in stored(store, "spread")}) == 4


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress])
def test_a_compressed_body_is_read_inflated(store, stub, pack):
    topic = f"packed-{pack.__module__}"
    assert code_of(stub.send(pack(b"plain" * 999), topic=topic, body_encoding=2)) == "OK"
    assert [one.body for one in stored(store, topic)] == [b"plain" * 999]


def test_a_delayed_message_is_delivered_when_it_is_due(store, stub):
    due = int(time.time() * 1000) + 700
    (entry,) = stub.send(b"1", topic="delayed", deliver_ms=due).entries
    assert entry.recall_handle
    assert not stored(store, "delayed")
    (found,) = wait_until(lambda: stored(store, "delayed"))
    assert found.store_timestamp >= due
    assert found.properties["UNIQ_KEY"] == entry.message_id


def test_a_recalled_message_is_not_delivered(store, stub):
    due = int(time.time() * 1000) + 1500
    entries = [stub.send(b, topic="recalled", deliver_ms=due).entries[0] for b in (b"1", b"2")]
    recall = {"topic": resource("recalled"), "recall_handle": entries[0].recall_handle}
    reply = stub.call("RecallMessage", **recall)
    assert (code_of(reply), reply.message_id) == ("OK", entries[0].message_id)
    other = {**recall, "topic": resource("t")}
    assert stub.code("RecallMessage", **other) == "NOT_FOUND"
    (found,) = wait_until(lambda: stored(store, "recalled"))
    assert found.body == b"2"
    assert stub.code("RecallMessage", **recall) == "NOT_FOUND"


def half(stub, topic, body=b"half", **system):
    (entry,) = stub.send(body, topic=topic, message_type=TRANSACTION, **system).entries
    assert entry.transaction_id == entry.message_id
    return entry.transaction_id


def end(stub, topic, transaction_id, resolution, source=1):
    return stub.code(
        "EndTransaction",
        topic=resource(topic),
        transaction_id=transaction_id,
        message_id=transaction_id,
        resolution=resolution,
        source=source,
    )


def test_a_committed_message_becomes_visible(store, stub):
    first, second = (half(stub, "committed", body) for body in (b"1", b"2"))
    assert not stored(store, "committed")
    assert end(stub, "committed", first, 0) == "OK"
    assert not stored(store, "committed")
    assert end(stub, "committed", second, ROLLBACK) == "OK"
    assert end(stub, "committed", first, COMMIT) == "OK"
    assert [one.body for one in stored(store, "committed")] == [b"1"]
    pulled = stub.call("PullMessage", message_queue=queue("committed", stored(
        store, "committed")[0].queue_id), batch_size=1)  # fmt: skip
    message_ = pulled[1].message
    assert message_.user_properties["__transactionId__"] == first
    assert message_.system_properties.message_type == TRANSACTION


def test_a_commit_or_rollback_can_be_repeated_but_not_changed(store, stub):
    committed, rolled = half(stub, "repeated"), half(stub, "repeated")
    for _ in range(3):
        assert end(stub, "repeated", committed, COMMIT) == "OK"
        assert end(stub, "repeated", rolled, ROLLBACK) == "OK"
    assert end(stub, "repeated", committed, ROLLBACK) == "INVALID_TRANSACTION_ID"
    assert end(stub, "repeated", rolled, COMMIT) == "INVALID_TRANSACTION_ID"
    assert len(stored(store, "repeated")) == 1


@pytest.mark.parametrize(("resolution", "bodies"), [(COMMIT, [b"half"]), (ROLLBACK, [])])
def test_a_transaction_whose_send_was_repeated_is_ended_once(store, stub, resolution, bodies):
    topic, transaction_id = f"again-{resolution}", f"01{resolution:032X}"
    for born in (1_700_000_000, 1_700_000_003):  # As the Python client repeats a send.
        half(stub, topic, message_id=transaction_id, born_timestamp={"seconds": born})
    for _ in range(2):
        assert end(stub, topic, transaction_id, resolution) == "OK"
    assert [one.body for one in stored(store, topic)] == bodies
    assert not [one for one in store.transactions.pending() if one.topic == topic]


def test_a_transaction_is_committed_only_with_its_own_topic(store, stub):
    transaction_id = half(stub, "owned")
    store.topics.create("other")
    assert end(stub, "other", transaction_id, COMMIT) == "INVALID_TRANSACTION_ID"
    assert end(stub, "owned", transaction_id, COMMIT) == "OK"


def producing(*topics):
    return {"client_type": 1, "publishing": {"topics": [resource(topic) for topic in topics]}}


def test_the_settings_of_a_producer_are_completed(stub):
    with stub.telemetry(**producing("t")) as commands:
        reply = next(commands)
    assert reply.status.code == OK
    settings = reply.settings
    assert settings.publishing.topics[0].name == "t"
    assert settings.publishing.max_body_size == 4 << 20
    assert settings.publishing.validate_message_type
    assert settings.backoff_policy.max_attempts == 3
    assert settings.backoff_policy.exponential_backoff.initial.nanos == 10_000_000
    assert not settings.metric.on


def test_a_nodejs_client_gets_its_settings_again(stub):
    agent = {"language": number("Language", "NODE_JS")}
    with stub.telemetry(**producing("t"), user_agent=agent) as commands:
        reply = next(commands)
        # The client receives at most 4 MiB per reply, including everything around a body.
        assert 4 << 19 < reply.settings.publishing.max_body_size <= (4 << 20) - 65_536
        assert reply == next(commands)
        assert stub.code("Heartbeat", client_type=1) == "OK"
        assert next(commands).settings.publishing.topics[0].name == "t"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, "BAD_REQUEST"),
        (producing("a b"), "ILLEGAL_TOPIC"),
        ({"subscription": {"group": {"name": "a b"}}}, "ILLEGAL_CONSUMER_GROUP"),
        *(
            ({"client_type": lite, "subscription": {"group": {"name": "g"}}}, "UNSUPPORTED")
            for lite in (5, 6)
        ),
    ],
)
def test_invalid_settings_end_the_stream_with_a_status(stub, settings, code):
    with stub.telemetry(**settings) as commands:
        (reply,) = commands
    assert code_of(reply) == code


def test_a_half_message_is_checked_with_a_producer_of_its_topic(store, stub, serving):
    other = Stub(serving[1], "other@1@0@y")
    with other.telemetry(**producing("elsewhere")), stub.telemetry(**producing("orphans")) as asked:
        next(asked)
        transaction_id = half(stub, "orphans", b"body")
        command = next(asked).recover_orphaned_transaction_command
        assert command.transaction_id == transaction_id
        system = command.message.system_properties
        assert (command.message.topic.name, command.message.body) == ("orphans", b"body")
        assert system.message_id == transaction_id
        assert system.body_digest.checksum.isupper()
        assert system.body_encoding == 1
        again = next(asked).recover_orphaned_transaction_command
        assert again.transaction_id == transaction_id
        assert end(stub, "orphans", transaction_id, COMMIT, source=2) == "OK"
    assert [one.body for one in stored(store, "orphans")] == [b"body"]
    other.close()


def test_a_half_message_is_checked_with_a_producer_whose_settings_lack_its_topic(stub):
    with stub.telemetry(**producing()) as asked:
        next(asked)
        transaction_id = half(stub, "unlisted")
        command = next(asked).recover_orphaned_transaction_command
        assert command.transaction_id == transaction_id
        end(stub, "unlisted", transaction_id, ROLLBACK)


def test_a_half_message_is_checked_when_a_producer_connects(store, stub):
    transaction_id = half(stub, "waiting")
    time.sleep(0.6)
    with stub.telemetry(**producing("waiting")) as asked:
        # The check may precede the reply to the settings.
        checks = (one.recover_orphaned_transaction_command.transaction_id for one in asked)
        assert next(filter(None, checks)) == transaction_id
        end(stub, "waiting", transaction_id, ROLLBACK)


def test_a_half_message_is_not_checked_before_its_recovery_time(store, stub):
    with stub.telemetry(**producing("patient")) as asked:
        next(asked)
        began = time.monotonic()
        transaction_id = half(stub, "patient", recovery_duration_s=1)
        assert next(asked).recover_orphaned_transaction_command.transaction_id == transaction_id
        assert time.monotonic() - began >= 1
        end(stub, "patient", transaction_id, ROLLBACK)


def test_a_terminated_client_is_removed_and_its_stream_is_closed(stub):
    with stub.telemetry(**producing("ended")) as commands:
        next(commands)
        assert stub.code("NotifyClientTermination") == "OK"
        assert list(commands) == []


def test_lite_consumers_are_unsupported(stub):
    assert stub.code("SyncLiteSubscription") == "UNSUPPORTED"
    for lite in (5, 6):
        assert stub.code("Heartbeat", client_type=lite, group=resource("g")) == "UNSUPPORTED"


def test_pulled_messages_equal_the_sent_messages(store, stub):
    store.topics.create("pulled", read_queues=1, write_queues=1)
    for number_ in range(5):
        stub.send(b"%d" % number_, topic="pulled", tag="even" if number_ % 2 == 0 else "odd",
                  properties={"n": str(number_)}, message_group="g")  # fmt: skip
    head, *messages, tail = stub.call(
        "PullMessage", message_queue=queue("pulled"), offset=1, batch_size=3
    )
    assert code_of(head) == "OK"
    assert [one.message.body for one in messages] == [b"1", b"2", b"3"]
    assert tail.next_offset == 4
    system = messages[0].message.system_properties
    assert (system.tag, system.queue_offset, system.message_group) == ("odd", 1, "g")
    assert system.message_type == number("MessageType", "FIFO")
    assert messages[0].message.user_properties == {"n": "1", "__SHARDINGKEY": "g"}


@pytest.mark.parametrize(
    ("filter_expression", "bodies"),
    [
        ({"type": 1, "expression": "even"}, [b"0", b"2"]),
        ({"type": 1, "expression": "odd || even"}, [b"0", b"1", b"2"]),
        ({"type": 1, "expression": "*"}, [b"0", b"1", b"2"]),
        ({"type": 2, "expression": "n > 0"}, [b"1", b"2"]),
    ],
)
def test_the_next_offset_of_a_pull_is_after_unselected_messages(
    store, stub, filter_expression, bodies
):
    if "filtered" not in store.topics.all():
        store.topics.create("filtered", read_queues=1, write_queues=1)
        for number_ in range(3):
            stub.send(b"%d" % number_, topic="filtered", tag=("even", "odd")[number_ % 2],
                      properties={"n": str(number_)})  # fmt: skip
    _, *messages, tail = stub.call(
        "PullMessage",
        message_queue=queue("filtered"),
        batch_size=32,
        filter_expression=filter_expression,
    )
    assert [one.message.body for one in messages] == bodies
    assert tail.next_offset == 3


def test_a_pull_at_the_end_of_a_queue_returns_no_messages(store, stub):
    store.topics.create("ended", read_queues=1, write_queues=1)
    head, tail = stub.call("PullMessage", message_queue=queue("ended"), offset=0, batch_size=1)
    assert (code_of(head), tail.next_offset) == ("MESSAGE_NOT_FOUND", 0)


def test_offsets_of_queues_are_queried_and_offsets_of_groups_are_committed(store, stub):
    store.topics.create("offsets", read_queues=1, write_queues=1)
    stub.send(b"1", b"2", topic="offsets")
    where = {"message_queue": queue("offsets")}
    ends = [stub.call("QueryOffset", **where, query_offset_policy=n).offset for n in (0, 1)]
    assert ends == [0, 2]
    first = stored(store, "offsets")[0].store_timestamp
    for ms, offset in ((first, 0), (first + 60_000, 2)):
        time_ = {"seconds": ms // 1000, "nanos": ms % 1000 * 1_000_000}
        found = stub.call("QueryOffset", **where, query_offset_policy=2, timestamp=time_)
        assert found.offset == offset
    store.groups.create("readers")
    mine = {**where, "group": resource("readers")}
    assert stub.code("GetOffset", **mine) == "OFFSET_NOT_FOUND"
    for offset in (2, 1):
        assert stub.code("UpdateOffset", **mine, offset=offset) == "OK"
        assert stub.call("GetOffset", **mine).offset == offset
    assert stub.code("UpdateOffset", **mine, offset=3) == "ILLEGAL_OFFSET"
    assert store.groups.committed("readers", "offsets") == {0: 1}


def test_a_namespace_is_part_of_the_topic_name(store, serving):
    stub = Stub(serving[1], metadata=[("x-mq-namespace", "ns")])
    assert code_of(stub.send(b"1", topic="spaced")) == "OK"
    assert [one.body for one in stored(store, "ns%spaced")] == [b"1"]
    route = stub.call("QueryRoute", topic=resource("spaced"), endpoints=ENDPOINTS)
    assert route.message_queues[0].topic.name == "spaced"
    plain = Stub(serving[1])
    in_resource = message(b"2")
    in_resource.topic.resource_namespace, in_resource.topic.name = "ns", "spaced"
    plain.call("SendMessage", messages=[in_resource])
    assert {one.body for one in stored(store, "ns%spaced")} == {b"1", b"2"}
    stub.close()
    plain.close()


def test_a_send_whose_flush_times_out_is_answered_with_a_status(tmp_path, monkeypatch):
    from pyrocket.engine.sender import Sender
    from pyrocket.values.message import SendStatus

    store = Store.open(tmp_path, create=True)
    monkeypatch.setattr(Sender, "flush", lambda *_: SendStatus.FLUSH_DISK_TIMEOUT)
    with served(store) as address:
        stub = Stub(address)
        reply = stub.send(b"1")
        assert code_of(reply) == "MASTER_PERSISTENCE_TIMEOUT"
        assert code_of(reply.entries[0]) == "MASTER_PERSISTENCE_TIMEOUT"
        stub.close()
