"""Invalid requests are rejected with RocketMQ's codes."""

import hashlib
import time
import zlib

import pytest
from pyrocket import Store
from pyrocket.base.config import MAX_BODY_BYTES
from pyrocket.server.messaging.interface import number
from support.broker import served
from support.rocketmq_stub import ENDPOINTS, Stub, message, queue, resource

DAY_MS = 86_400_000
TRANSACTION, FIFO = number("MessageType", "TRANSACTION"), number("MessageType", "FIFO")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    store = Store.open(tmp_path_factory.mktemp("store"), create=True)
    store.topics.create("t")
    store.topics.create("closed", perm=4)
    for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"):
        store.topics.create(kind)
        store.topics.set_message_type(kind, kind)
    with served(store) as found:
        yield found


@pytest.fixture
def stub(address):
    found = Stub(address)
    yield found
    found.close()


def in_ms(ms):
    return int(time.time() * 1000) + ms


REFUSED = {
    "no topic": ("ILLEGAL_TOPIC", {"topic": ""}),
    "long topic": ("ILLEGAL_TOPIC", {"topic": "t" * 128}),
    "illegal character": ("ILLEGAL_TOPIC", {"topic": "t.t"}),
    "system topic": ("ILLEGAL_TOPIC", {"topic": "SCHEDULE_TOPIC_XXXX"}),
    "read-only topic": ("FORBIDDEN", {"topic": "closed"}),
    "empty body": ("MESSAGE_BODY_EMPTY", {"body": b""}),
    "long body": ("MESSAGE_BODY_TOO_LARGE", {"body": bytes(MAX_BODY_BYTES + 1)}),
    "wrong digest": ("MESSAGE_CORRUPTED", {"body_digest": {"type": 2, "checksum": "00"}}),
    "not compressed": ("MESSAGE_CORRUPTED", {"body_encoding": 2}),
    "not gzip": ("MESSAGE_CORRUPTED", {"body": b"\x1f\x8b0", "body_encoding": 2}),
    "blank tag": ("ILLEGAL_MESSAGE_TAG", {"tag": " "}),
    "tag with a bar": ("ILLEGAL_MESSAGE_TAG", {"tag": "a|b"}),
    "blank key": ("ILLEGAL_MESSAGE_KEY", {"keys": ["a", " "]}),
    "blank message group": ("ILLEGAL_MESSAGE_GROUP", {"message_group": " "}),
    "long message group": ("ILLEGAL_MESSAGE_GROUP", {"message_group": "é" * 32}),
    "reserved property": ("ILLEGAL_MESSAGE_PROPERTY_KEY", {"properties": {"KEYS": "a"}}),
    "name with a control character": (
        "ILLEGAL_MESSAGE_PROPERTY_KEY",
        {"properties": {"\x01": "a"}},
    ),
    "many properties": (
        "MESSAGE_PROPERTIES_TOO_LARGE",
        {"properties": {f"p{n}": "v" for n in range(129)}},
    ),
    "long properties": ("MESSAGE_PROPERTIES_TOO_LARGE", {"properties": {"a": "b" * 16_384}}),
    "long trace context": ("MESSAGE_PROPERTIES_TOO_LARGE", {"trace_context": "b" * 16_385}),
    "long keys": ("MESSAGE_PROPERTIES_TOO_LARGE", {"keys": ["b" * 16_385]}),
    "blank id": ("ILLEGAL_MESSAGE_ID", {"message_id": ""}),
    "due after a day": ("ILLEGAL_DELIVERY_TIME", {"deliver_ms": DAY_MS + 60_000}),
    "long recovery": ("BAD_REQUEST", {"message_type": TRANSACTION, "recovery_duration_s": 3601}),
    "lite": ("UNSUPPORTED", {"message_type": number("MessageType", "LITE")}),
    "priority": ("UNSUPPORTED", {"message_type": number("MessageType", "PRIORITY")}),
    "normal message with a priority": ("UNSUPPORTED", {"priority": 1}),
    "FIFO in a transaction": (
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
        {"message_type": TRANSACTION, "message_group": "g"},
    ),
    "normal message, FIFO topic": ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", {"topic": "FIFO"}),
    "FIFO message, NORMAL topic": (
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
        {"topic": "NORMAL", "message_group": "g"},
    ),
}
ACCEPTED = {
    "largest body": {"body": bytes(MAX_BODY_BYTES)},
    "largest properties": {"properties": {"a": "b" * 16_383}},
    "most properties": {"properties": {f"p{n}": "v" for n in range(128)}},
    "longest message group": {"message_group": "g" * 63},
    "due in a day": {"deliver_ms": DAY_MS - 5000},
    "due before now": {"deliver_ms": -5000},
    "longest recovery": {"message_type": TRANSACTION, "recovery_duration_s": 3600},
    "CRC-32 digest of RocketMQ's Java client": {
        "body_digest": {"type": 1, "checksum": f"{zlib.crc32(b'body'):X}"},
        "body": b"body",
    },
    "MD5 digest": {
        "body_digest": {"type": 2, "checksum": hashlib.md5(b"body").hexdigest().upper()},
        "body": b"body",
    },
    "empty property": {"properties": {"a": ""}},
    "no type": {"message_type": 0},
    "time out of range": {"born_timestamp": {"seconds": 2**62}},
}


def sent(fields):
    fields = dict(fields)
    if "deliver_ms" in fields:
        fields["deliver_ms"] = in_ms(fields["deliver_ms"])
    return message(**fields)


@pytest.mark.parametrize("case", REFUSED)
def test_a_message_is_rejected_with_its_code(stub, case):
    code, fields = REFUSED[case]
    reply = stub.call("SendMessage", messages=[sent(fields)])
    assert reply.status.code == number("Code", code), reply
    assert reply.status.message
    assert not reply.entries


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_message_at_a_limit_is_accepted(stub, case):
    reply = stub.call("SendMessage", messages=[sent(ACCEPTED[case])])
    assert reply.status.code == number("Code", "OK"), reply


def test_a_request_with_one_invalid_message_is_rejected(stub):
    good, bad = message(b"good", topic="NORMAL"), message(b"", topic="NORMAL")
    assert stub.code("SendMessage", messages=[good, bad]) == "MESSAGE_BODY_EMPTY"
    (end,) = [stub.call("QueryOffset", message_queue=queue("NORMAL"), query_offset_policy=1)]
    assert end.offset == 0


CALLS = {
    "send without messages": ("MESSAGE_CORRUPTED", "SendMessage", {"messages": []}),
    "send to two topics": (
        "MESSAGE_CORRUPTED",
        "SendMessage",
        {"messages": [message(), message(topic="NORMAL")]},
    ),
    "route of an illegal topic": (
        "ILLEGAL_TOPIC",
        "QueryRoute",
        {"topic": resource("a/b"), "endpoints": ENDPOINTS},
    ),
    "route without endpoints": ("ILLEGAL_ACCESS_POINT", "QueryRoute", {"topic": resource("t")}),
    "heartbeat of a system group": (
        "ILLEGAL_CONSUMER_GROUP",
        "Heartbeat",
        {"group": resource("CID_RMQ_SYS_X")},
    ),
    "blank transaction id": (
        "INVALID_TRANSACTION_ID",
        "EndTransaction",
        {"topic": resource("t"), "transaction_id": " ", "resolution": 1},
    ),
    "unknown transaction id": (
        "INVALID_TRANSACTION_ID",
        "EndTransaction",
        {"topic": resource("t"), "transaction_id": "x", "resolution": 1},
    ),
    "malformed recall handle": (
        "BAD_REQUEST",
        "RecallMessage",
        {"topic": resource("t"), "recall_handle": "%"},
    ),
    "recall of nothing": (
        "NOT_FOUND",
        "RecallMessage",
        {"topic": resource("t"), "recall_handle": "djEgdCBicm9rZXItYSAxIHg="},
    ),
    "pull before the start": (
        "ILLEGAL_OFFSET",
        "PullMessage",
        {"message_queue": queue("DELAY"), "offset": -1},
    ),
    "pull after the end": (
        "ILLEGAL_OFFSET",
        "PullMessage",
        {"message_queue": queue("DELAY"), "offset": 1},
    ),
    "pull of a missing topic": (
        "TOPIC_NOT_FOUND",
        "PullMessage",
        {"message_queue": queue("missing"), "offset": 0},
    ),
    "pull of a missing queue": (
        "NOT_FOUND",
        "PullMessage",
        {"message_queue": queue("t", 4), "offset": 0},
    ),
    "pull with a malformed filter": (
        "ILLEGAL_FILTER_EXPRESSION",
        "PullMessage",
        {"message_queue": queue(), "filter_expression": {"type": 2, "expression": "a >"}},
    ),
    "pull with a filter of no tag": (
        "ILLEGAL_FILTER_EXPRESSION",
        "PullMessage",
        {"message_queue": queue(), "filter_expression": {"type": 1, "expression": "||"}},
    ),
    "offset of a missing group": (
        "CONSUMER_GROUP_NOT_FOUND",
        "UpdateOffset",
        {"message_queue": queue("DELAY"), "group": resource("missing")},
    ),
    "offset never committed": (
        "OFFSET_NOT_FOUND",
        "GetOffset",
        {"message_queue": queue("DELAY"), "group": resource("missing")},
    ),
    "offset without a time": (
        "BAD_REQUEST",
        "QueryOffset",
        {"message_queue": queue("DELAY"), "query_offset_policy": 2},
    ),
    "offset by an unknown policy": (
        "BAD_REQUEST",
        "QueryOffset",
        {"message_queue": queue("DELAY"), "query_offset_policy": 9},
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_is_rejected_with_its_code(stub, case):
    code, call, fields = CALLS[case]
    assert stub.code(call, **fields) == code


@pytest.mark.parametrize("client_id", ["", " "])
def test_a_call_needs_a_client_id(address, client_id):
    stub = Stub(address, client_id)
    for call in ("QueryRoute", "SendMessage", "Heartbeat", "PullMessage", "GetOffset"):
        assert stub.code(call) == "CLIENT_ID_REQUIRED"
    with stub.telemetry(publishing={}) as commands:
        assert next(commands).status.code == number("Code", "CLIENT_ID_REQUIRED")
    stub.close()
