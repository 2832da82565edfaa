"""Bodies are inflated within limits: when they are sent, and when they are received."""

import os
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from pyrocket import Message, Store, StoreConfig
from pyrocket.errors import MessageError
from pyrocket.formats.compression import COMPRESSED_FLAGS, inflated_bytes
from pyrocket.formats.record import encode_record
from pyrocket.remote.client import Client
from pyrocket.remote.connection import Connection
from pyrocket.server.incoming import Incoming
from pyrocket.values.message import MessageQueue, OutgoingMessage
from pyrocket.wire.channel import method_of
from pyrocket.wire.errors import carried_error
from pyrocket.wire.messages import fill
from support.blocks import block_of
from support.broker import served
from support.rocketmq_stub import Stub, code_of, queue, resource

QUEUE = MessageQueue("t", "broker-a", 0)
LONGEST = 1 << 20
LONG = zlib.compress(bytes(LONGEST + 1))
BROKEN = zlib.compress(b"x" * 9999)[:-5]
GZIP = 2


@pytest.fixture
def store(tmp_path):
    store = Store.open(
        tmp_path / "store", create=True, config=StoreConfig(max_message_bytes=LONGEST)
    )
    store.topics.create("t", read_queues=1, write_queues=1)
    store.groups.create("g")
    return store


@pytest.fixture
def address(store):
    with served(store) as found:
        yield found


def record(body):
    return encode_record(
        topic="t",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=COMPRESSED_FLAGS,
        body=body,
        properties=b"UNIQ_KEY\x011\x02",
        born_timestamp=0,
        store_timestamp=0,
    )


def test_the_length_of_a_body_is_counted_in_parts():
    for length in (0, 1, 65_536, 200_000):
        assert inflated_bytes(zlib.compress(bytes(length)), 1 << 20) == length
    assert 100_000 < inflated_bytes(zlib.compress(bytes(1 << 24)), 100_000) <= 1 << 20
    for broken in (BROKEN, b"", b"x", zlib.compress(b"x" * 99)[:-1]):
        assert inflated_bytes(broken, 1 << 20) is None


@pytest.mark.parametrize(("body", "code"), [(LONG, "BODY_TOO_LARGE"), (BROKEN, "BODY_CORRUPT")])
def test_bodies_that_do_not_inflate_within_the_limit_are_refused(address, store, body, code):
    client, block = Client(Connection(address)), block_of(record(body))
    outgoing = OutgoingMessage(Message(topic="t", body=b""), body, "id", 1, COMPRESSED_FLAGS)
    name = f"{'0' * 32}/{0:020d}-00000-0-{'0' * 32}"
    for call, arguments in (
        ("Append", {"topics": {"t": 1}, "records": [block]}),
        ("Stage", {"name": name, "topics": {"t": 1}, "records": [block]}),
        ("SendMessages", {"queue": QUEUE, "messages": [outgoing]}),
        ("SendHalf", {"group": "g", "queue": QUEUE, "message": outgoing}),
    ):
        of = "pyrocket.v1.Clients" if call.startswith("Send") else "pyrocket.v1.Broker"
        with pytest.raises(MessageError) as caught:
            call_of(client, call, of, arguments)
        assert caught.value.code == code, call
    stub = Stub(address)
    reply = stub.send(body, body_encoding=GZIP)
    wanted = "MESSAGE_BODY_TOO_LARGE" if code == "BODY_TOO_LARGE" else "MESSAGE_CORRUPTED"
    assert code_of(reply) == wanted
    assert sum(one.maximum for one in store.offsets("t").values()) == 0
    client.close()
    stub.close()


def test_a_request_of_bombs_is_refused_soon(address):
    bomb, stub = zlib.compress(bytes(100 << 20)), Stub(address)
    full = zlib.compress(bytes(LONGEST))
    began = time.monotonic()
    for bodies in ([bomb] * 60, [full] * 1000):
        reply = stub.send(*bodies, body_encoding=GZIP)
        assert code_of(reply) == "MESSAGE_BODY_TOO_LARGE"
    assert time.monotonic() - began < 5
    assert code_of(stub.send(*[full] * 16, body_encoding=GZIP)) == "OK"
    stub.close()


def call_of(client, call, of, arguments):
    if of == "pyrocket.v1.Broker":
        return client.call(call, **arguments)
    method, request, _ = method_of(call, of)
    sent = fill(request(), arguments).SerializeToString()
    try:
        return client.connection.channel.unary_unary(method)(sent, timeout=20)
    except grpc.RpcError as error:
        raise carried_error(error, "broker") from None


@pytest.mark.parametrize("call", ["PullMessage", "ReceiveMessage"])
def test_long_bodies_are_received_one_at_a_time(tmp_path, monkeypatch, call):
    """A store of RocketMQ may have bodies that inflate to more than `max_message_bytes`."""
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("t", read_queues=1, write_queues=1)
    store.groups.create("g")
    long = os.urandom(1000) + bytes(6 << 20)
    monkeypatch.setattr("pyrocket.engine.message_encoder.check_message", lambda *_: None)
    for number in range(12):
        store.append(Message(topic="t", body=b"%d" % number + long, queue_id=0))
    sending, most, send = [], [0], Incoming.send

    async def counted(self, *replies):
        sending.append(self)
        most[0] = max(most[0], len(sending))
        await send(self, *replies)
        sending.remove(self)

    monkeypatch.setattr(Incoming, "send", counted)
    with served(store) as address, ThreadPoolExecutor(12) as pool:
        stub = Stub(address)
        stub.channel = grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)])
        place = {"group": resource("g"), "message_queue": queue("t"), "batch_size": 1}
        more = (
            {"long_polling_timeout": {"seconds": 5}, "invisible_duration": {"seconds": 60}}
            if call == "ReceiveMessage"
            else {}
        )

        def bodies(number):
            offset = {} if more else {"offset": number}
            replies = stub.call(call, **place, **more, **offset)
            return [one.message.body for one in replies if one.HasField("message")]

        found = sorted(body for some in pool.map(bodies, range(12)) for body in some)
        assert found == sorted(b"%d" % number + long for number in range(12))
        assert most == [1]
        stub.close()
