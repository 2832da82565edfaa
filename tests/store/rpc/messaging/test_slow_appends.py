"""Calls that are cancelled while their appends wait, and appends whose flush times out."""

import threading
import time

import grpc
import pytest
from pyrocket import Store
from pyrocket.rpc.messaging.interface import SERVICE, new
from store.rpc.messaging.test_receives import forward, handle, receive
from support.broker import served
from support.rocketmq_stub import Stub, message, resource


class Held:
    """An append function that can be held."""

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
    held = store.sink.receiver.append = Held(store.sink.receiver.append)
    with served(store) as address:
        yield store, address, held
        held.free.set()


@pytest.fixture
def stub(serving):
    found = Stub(serving[1])
    yield found
    found.close()


def call_in_vain(stub, name, **fields):
    """Call, and give up after a moment."""
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
    stub.send(b"2", topic="other")  # The append thread has done all before.
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
