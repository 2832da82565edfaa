"""A client that resets a call while its reply is written leaves no error in the log."""

import logging
import os
import time

import grpc
import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.server.messaging.interface import SERVICE, new
from pyrocket.values.message import MessageQueue, QueueRange
from pyrocket.wire.channel import method_of
from pyrocket.wire.messages import fill
from support.broker import served
from support.rocketmq_stub import Stub, code_of, queue, resource


@pytest.fixture
def store(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("t", read_queues=1, write_queues=1)
    store.groups.create("g")
    body = pa.array([os.urandom(1_000_000)] * 30, pa.binary())
    store.append_batch(pa.record_batch({"body": body}), topic="t")
    return store


def reset_while_a_reply_is_written(call):
    next(call)
    time.sleep(0.3)  # The window of the stream is full, and the broker waits to send the rest.
    call.cancel()


def receive(stub):
    request = new(
        "ReceiveMessageRequest",
        group=resource("g"),
        message_queue=queue("t"),
        batch_size=30,
        auto_renew=True,
        long_polling_timeout={"seconds": 5},
    )
    call = stub.channel.unary_stream(f"/{SERVICE}/ReceiveMessage")
    return call(request.SerializeToString(), metadata=stub.metadata, timeout=30)


def test_messages_of_a_reset_receive_are_received_again_soon(store, caplog):
    with served(store) as address:
        stub = Stub(address)
        reset_while_a_reply_is_written(receive(stub))
        began = time.monotonic()
        assert code_of(new("ReceiveMessageResponse").FromString(next(receive(stub)))) == "OK"
        assert time.monotonic() - began < 4
        stub.close()
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_reset_read_of_a_spark_task_is_not_logged(store, caplog):
    wanted = [QueueRange(MessageQueue("t", store.broker_name, 0), 0, 30)]
    with served(store) as address, grpc.insecure_channel(address) as channel:
        method, request, _ = method_of("Slices")
        call = channel.unary_stream(method)(fill(request(), {"ranges": wanted}).SerializeToString())
        reset_while_a_reply_is_written(call)
        time.sleep(0.2)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
