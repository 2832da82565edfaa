"""The message trace of sends, receives, acks and transactions."""

import threading
from contextlib import contextmanager

import pytest
from pyrocket import Store
from pyrocket.formats.message_keys import parse_offset_message_id
from pyrocket.formats.system_topics import TRACE_TOPIC
from pyrocket.formats.trace import EndTransaction, Pub, SubAfter, SubBefore, decode
from pyrocket.server.messaging.interface import number
from support.broker import served
from support.commands import document_on
from support.rocketmq_stub import Stub, code_of, queue, resource

GROUP, TOPIC = resource("g"), resource("t")


@pytest.fixture
def path(tmp_path):
    with Store.open(tmp_path / "s", create=True) as store:
        store.topics.create("t")
        store.groups.create("g")
    return tmp_path / "s"


@contextmanager
def client(path, **settings):
    with served(Store.open(path), **settings) as address:
        stub = Stub(address)
        yield stub
        stub.close()


def receive(stub, topic="t", group=GROUP):
    """Receive one message; return its id and its receipt handle."""
    replies = stub.call(
        "ReceiveMessage",
        group=group,
        message_queue=queue(topic),
        batch_size=1,
        invisible_duration={"seconds": 60},
    )
    (message,) = [one.message for one in replies if one.WhichOneof("content") == "message"]
    system = message.system_properties
    return {"message_id": system.message_id, "receipt_handle": system.receipt_handle}


def change(stub, received):
    """Make a message visible in 10 ms; return its new handle."""
    reply = stub.call(
        "ChangeInvisibleDuration",
        group=GROUP,
        topic=TOPIC,
        invisible_duration={"nanos": 10_000_000},
        **received,
    )
    assert code_of(reply) == "OK"
    return {**received, "receipt_handle": reply.receipt_handle}


def ack(stub, *received, topic=TOPIC):
    return code_of(stub.call("AckMessage", group=GROUP, topic=topic, entries=received))


def messages(path, topic=TRACE_TOPIC):
    with Store.open(path, read_only=True) as store:
        return [*store.messages(topic)]


def traces(path):
    return [one for message in messages(path) for one in decode(message.body.decode())]


def test_a_send_a_delivery_and_an_ack_are_traced(path):
    with client(path, trace=True) as stub:
        stub.send(b"apples", message_id="ID1", tag="fruit", keys=["k1", "k2"])
        assert ack(stub, receive(stub)) == "OK"
    (stored,) = messages(path, "t")
    pub, before, after = traces(path)
    host, port, physical_offset = parse_offset_message_id(pub.offset_message_id)
    assert physical_offset == stored.physical_offset
    broker = f"{'.'.join(map(str, host))}:{port}"
    assert broker.startswith("127.0.0.1:")
    assert broker != stored.store_host
    assert pub == Pub(pub.timestamp, "DefaultRegion", "t", "t", "ID1", "fruit", "k1 k2",
                      broker, 6, pub.cost_ms, 0, pub.offset_message_id, True)  # fmt: skip
    assert 0 <= pub.cost_ms < 60_000
    assert before == SubBefore(
        before.timestamp, "DefaultRegion", "g", before.request_id, "ID1", 0, "k1 k2"
    )
    assert after == SubAfter(before.request_id, "ID1", 0, True, None, 0, after.timestamp, "g")
    assert pub.timestamp <= before.timestamp <= after.timestamp


def test_a_failure_and_a_dead_letter_are_traced_as_failures(path):
    with client(path, trace=True) as stub:
        stub.send(b"1", message_id="ID1")
        change(stub, receive(stub))
        again = receive(stub)
        call = "ForwardMessageToDeadLetterQueue"
        assert stub.code(call, group=GROUP, topic=TOPIC, **again) == "OK"
    _, before, failed, before_again, dead = traces(path)
    assert (before.retry_times, before_again.retry_times) == (0, 1)
    assert before.request_id != before_again.request_id
    for delivery, end in ((before, failed), (before_again, dead)):
        assert isinstance(delivery, SubBefore)
        expected = SubAfter(delivery.request_id, "ID1", 0, False, None, 4, end.timestamp, "g")
        assert end == expected


def test_the_request_id_remains_the_same_when_the_handle_changes(path):
    with client(path, trace=True) as stub:
        stub.send(b"1")
        call = {"group": GROUP, "topic": TOPIC, "invisible_duration": {"seconds": 60}}
        received = receive(stub)
        renewed = stub.call("ChangeInvisibleDuration", **call, **received).receipt_handle
        assert ack(stub, {**received, "receipt_handle": renewed}) == "OK"
    _, before, changed, acked = traces(path)
    assert before.request_id == changed.request_id == acked.request_id


def test_the_end_of_a_transaction_is_traced(path):
    types = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE"}
    sources = ("SOURCE_CLIENT", "SOURCE_SERVER_CHECK")
    with client(path, trace=True) as stub:
        for resolution, source in zip(types, sources, strict=True):
            kind = number("MessageType", "TRANSACTION")
            stub.send(b"half", message_id=resolution, message_type=kind)
            code = stub.code(
                "EndTransaction",
                topic=TOPIC,
                message_id="ignored",
                transaction_id=resolution,
                resolution=number("TransactionResolution", resolution),
                source=number("TransactionSource", source),
            )
            assert code == "OK"
    found = traces(path)
    halves = [one for one in found if isinstance(one, Pub)]
    assert [(one.message_id, one.message_type) for one in halves] == [
        ("COMMIT", 1),
        ("ROLLBACK", 1),
    ]
    ends = [one for one in found if isinstance(one, EndTransaction)]
    assert ends == [
        EndTransaction(end.timestamp, "DefaultRegion", "t", "t", name, None, None,
                       end.store_host, 2, name, state, checked)
        for end, (name, state), checked in zip(ends, types.items(), (False, True), strict=True)
    ]  # fmt: skip


def test_trace_messages_are_found_by_message_id_and_key(path):
    with client(path, trace=True) as stub:
        stub.send(b"1", message_id="ID1", keys=["k1"])
        stub.send(b"2", message_id="ID2", keys=["k2"])
    for key in ("ID1", "k1", "ID2", "k2"):
        found = document_on(path, "message", "find", TRACE_TOPIC, "--key", key)
        assert len(found["messages"]) == 1, found


def test_trace_messages_have_the_address_of_their_client(path):
    with client(path, trace=True) as stub:
        stub.send(b"1", born_host="10.1.2.3:99")
        stub.send(b"2", born_host="10.1.2.4:99")
        stub.send(b"3", born_host="10.1.2.3:99")
    hosts = [message.born_host for message in messages(path)]
    assert {*hosts} == {"10.1.2.3:99", "10.1.2.4:99"}


def test_many_traces_are_split_into_several_messages(path):
    keys = [f"key-{number}" * 100 for number in range(20)]
    with client(path, trace=True) as stub:
        for _ in range(10):
            stub.send(b"1", keys=keys)
    bodies = [message.body for message in messages(path)]
    assert len(traces(path)) == 10
    assert len(bodies) > 1
    assert all(len(body) <= 30_000 for body in bodies)


def test_a_rejected_call_is_not_traced(path):
    with client(path, trace=True) as stub:
        stub.send(b"")
        assert ack(stub, {"message_id": "ID1", "receipt_handle": "x"}) == "INVALID_RECEIPT_HANDLE"
    assert not traces(path)


def test_the_trace_topic_is_not_traced(path):
    with client(path, trace=True, trace_topic="my_traces") as stub:
        stub.send(b"1", topic="my_traces")
        assert ack(stub, receive(stub, "my_traces"), topic=resource("my_traces")) == "OK"
        stub.send(b"2", message_id="ID2", topic="t")
    first, second = messages(path, "my_traces")
    assert first.body == b"1"
    assert [one.message_id for one in decode(second.body.decode())] == ["ID2"]


def test_nothing_is_traced_by_default(path):
    with client(path) as stub:
        stub.send(b"1")
        assert "pyrocket-traces" not in {thread.name for thread in threading.enumerate()}
    with Store.open(path, read_only=True) as store:
        assert TRACE_TOPIC not in store.topics.all()
