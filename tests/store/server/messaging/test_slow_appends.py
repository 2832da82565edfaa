"""Calls that are cancelled while their appends are pending, and appends whose flush times out."""

import threading
import time

import grpc
import pytest
from pyrocket import Store
from pyrocket.engine.sender import Sender
from pyrocket.server.messaging.interface import SERVICE, new, number
from pyrocket.store import sender_of
from pyrocket.values.message import SendStatus
from store.server.messaging.test_receives import ack, change, handle, receive
from support.broker import served
from support.rocketmq_stub import Stub, code_of, message, resource


class Held:
    """An append function that can be blocked."""

    def __init__(self, append):
        self.append, self.free, self.began = append, threading.Event(), threading.Event()
        self.free.set()

    def __call__(self, requests):
        self.began.set()
        assert self.free.wait(20)
        return self.append(requests)

    def hold(self):
        self.began.clear()
        self.free.clear()


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    store = Store.open(tmp_path_factory.mktemp("store"), create=True)
    for topic in ("t", "other"):
        store.topics.create(topic, read_queues=1, write_queues=1)
    store.groups.create("fifo")
    held = sender_of(store).append_received = Held(sender_of(store).append_received)
    with served(store) as address:
        yield store, address, held
        held.free.set()


@pytest.fixture
def stub(serving):
    found = Stub(serving[1])
    yield found
    found.close()


def forward(stub, topic, handle, group="fifo"):
    return stub.code(
        "ForwardMessageToDeadLetterQueue",
        group=resource(group),
        topic=resource(topic),
        receipt_handle=handle,
        message_id="x",
    )


def call_in_vain(stub, name, **fields):
    """Make a call that is cancelled by its deadline after half a second."""
    request = new(f"{name}Request", **fields).SerializeToString()
    call = stub.channel.unary_unary(f"/{SERVICE}/{name}")
    with pytest.raises(grpc.RpcError) as caught:
        call(request, metadata=stub.metadata, timeout=0.5)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    time.sleep(0.1)


def test_a_dead_letter_whose_call_is_cancelled_is_not_lost(serving, stub):
    store, _, held = serving
    stub.send(b"dead")
    _, (found,) = receive(stub, "t", "fifo")
    held.hold()
    sender = threading.Thread(target=stub.send, args=(b"1",), kwargs={"topic": "other"})
    sender.start()
    assert held.began.wait(10)
    names = {"group": resource("fifo"), "topic": resource("t")}
    call_in_vain(
        stub,
        "ForwardMessageToDeadLetterQueue",
        **names,
        receipt_handle=handle(found),
        message_id="x",
    )
    held.free.set()
    sender.join()
    stub.send(b"2", topic="other")  # The append thread has completed all earlier appends.
    assert store.max_offset("%DLQ%fifo", 0) == 1
    assert forward(stub, "t", handle(found)) == "INVALID_RECEIPT_HANDLE"


def test_a_send_whose_call_is_cancelled_logs_no_error(serving, stub, caplog):
    store, _, held = serving
    held.hold()
    call_in_vain(stub, "SendMessage", messages=[message(b"given up", "other")])
    held.free.set()
    stub.send(b"3", topic="other")
    assert not [one for one in caplog.records if one.exc_info]
    assert store.max_offset("other", 0) >= 2


@pytest.fixture
def late(monkeypatch):
    """Return a function that makes every flush time out until it is called with False."""
    real = Sender.flush

    def set_late(is_late=True):
        timeout = lambda *_: SendStatus.FLUSH_DISK_TIMEOUT  # noqa: E731
        monkeypatch.setattr(Sender, "flush", timeout if is_late else real)

    return set_late


LATE = "MASTER_PERSISTENCE_TIMEOUT"


def test_an_ack_that_may_not_be_durable_can_be_repeated(serving, stub, late):
    serving[0].topics.create("acked")
    stub.send(b"1", topic="acked")
    _, (found,) = receive(stub, "acked")
    late()
    reply = ack(stub, "acked", handle(found))
    assert code_of(reply) == code_of(reply.entries[0]) == LATE
    assert code_of(ack(stub, "acked", handle(found), "wrong")) == "MULTIPLE_RESULTS"
    late(False)
    assert code_of(ack(stub, "acked", handle(found))) == "OK"
    assert code_of(ack(stub, "acked", handle(found))) == "INVALID_RECEIPT_HANDLE"


def test_a_dead_letter_that_may_not_be_durable_can_be_repeated(serving, stub, late):
    store = serving[0]
    store.topics.create("buried")
    stub.send(b"1", topic="buried")
    _, (found,) = receive(stub, "buried", "late")
    late()
    assert forward(stub, "buried", handle(found), "late") == LATE
    late(False)
    assert forward(stub, "buried", handle(found), "late") == "OK"
    assert store.max_offset("%DLQ%late", 0) == 1


def test_the_reply_to_a_change_that_may_not_be_durable_has_the_new_handle(serving, stub, late):
    serving[0].topics.create("kept")
    stub.send(b"1", topic="kept")
    _, (found,) = receive(stub, "kept")
    late()
    reply = change(stub, "kept", handle(found), 60)
    assert code_of(reply) == LATE
    late(False)
    assert code_of(ack(stub, "kept", reply.receipt_handle)) == "OK"


def test_messages_of_a_receive_that_may_not_be_durable_are_received_again_soon(serving, stub, late):
    serving[0].topics.create("received")
    stub.send(b"1", topic="received")
    late()
    assert receive(stub, "received") == (LATE, [])
    late(False)
    code, (found,) = receive(stub, "received", wait_s=10)
    assert (code, found.system_properties.delivery_attempt) == ("OK", 2)


def test_a_commit_that_may_not_be_durable_can_be_repeated(serving, stub, late):
    sent = stub.send(b"1", topic="other", message_type=number("MessageType", "TRANSACTION"))
    fields = {
        "topic": resource("other"),
        "message_id": sent.entries[0].message_id,
        "transaction_id": sent.entries[0].transaction_id,
        "resolution": number("TransactionResolution", "COMMIT"),
    }
    late()
    assert stub.code("EndTransaction", **fields) == LATE
    late(False)
    assert stub.code("EndTransaction", **fields) == "OK"
