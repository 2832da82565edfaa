"""Malformed requests are answered with RocketMQ's codes, and the broker keeps running."""

import random

import grpc
import pytest
from pyrocket import Message, Store
from pyrocket.server.messaging.interface import PACKAGE, SERVICE, name_of, new
from pyrocket.wire.descriptors import message_class, service
from support.broker import served
from support.rocketmq_stub import ENDPOINTS, message, queue, resource

CALLS = [one for one in service(SERVICE).methods if one.name != "SyncLiteSubscription"]
PLACE = {"topic": resource("t"), "group": resource("g")}
QUEUE = {"message_queue": queue(), "group": resource("g")}
VALID = {
    "QueryRoute": {"topic": resource("t"), "endpoints": ENDPOINTS},
    "QueryAssignment": {**PLACE, "endpoints": ENDPOINTS},
    "SendMessage": {
        "messages": [
            message(
                tag="a",
                keys=["k"],
                message_group="g",
                born_host="127.0.0.1:1",
                properties={"a": "b"},
                deliver_ms=1000,
                recovery_duration_s=5,
                born_timestamp={"seconds": 1},
                body_digest={"type": 1, "checksum": "x"},
            )
        ]
    },
    "ReceiveMessage": {
        **QUEUE,
        "batch_size": 3,
        "invisible_duration": {"seconds": 20},
        "long_polling_timeout": {},
        "filter_expression": {"type": 2, "expression": "a > 1"},
    },
    "AckMessage": {**PLACE, "entries": [{"message_id": "x", "receipt_handle": "AQAA"}]},
    "ChangeInvisibleDuration": {
        **PLACE,
        "receipt_handle": "AQAA",
        "invisible_duration": {"seconds": 1},
    },
    "ForwardMessageToDeadLetterQueue": {**PLACE, "receipt_handle": "AQAA"},
    "PullMessage": {**QUEUE, "batch_size": 2, "long_polling_timeout": {}},
    "UpdateOffset": {**QUEUE, "offset": 1},
    "GetOffset": QUEUE,
    "QueryOffset": {
        "message_queue": queue(),
        "query_offset_policy": 2,
        "timestamp": {"seconds": 1, "nanos": 5},
    },
    "EndTransaction": {"topic": resource("t"), "transaction_id": "x", "resolution": 1},
    "RecallMessage": {"topic": resource("t"), "recall_handle": "djEgdCBiIDEgeA=="},
    "Heartbeat": {"group": resource("g")},
    "NotifyClientTermination": {"group": resource("g")},
    "Telemetry": {
        "settings": new("Settings", publishing={"topics": [resource("t")]}),
    },
}


@pytest.fixture(scope="module")
def channel(tmp_path_factory):
    with Store.open(tmp_path_factory.mktemp("store"), create=True) as store:
        store.topics.create("t")
        store.append(Message(topic="t", body=b"1", queue_id=0))
        store.groups.create("g")
        with served(store) as address:
            found = grpc.insecure_channel(address)
            yield found
            found.close()


def changed(data, rng):
    """Return a request with some bytes changed, removed or inserted."""
    data = bytearray(data)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
    return bytes(data)


def codes(channel, method, data):
    """Return the codes of all replies."""
    path, options = f"/{SERVICE}/{method.name}", {"metadata": [("x-mq-client-id", "x")]}
    kind = message_class(method.output_type.full_name)
    if method.client_streaming:
        replies = channel.stream_stream(path)(iter([data]), timeout=20, **options)
    elif method.server_streaming:
        replies = channel.unary_stream(path)(data, timeout=20, **options)
    else:
        replies = [channel.unary_unary(path)(data, timeout=20, **options)]
    return [name_of("Code", kind.FromString(one).status.code) for one in replies]


@pytest.mark.parametrize("count", [20, pytest.param(650, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("method", CALLS, ids=lambda method: method.name)
def test_a_malformed_request_is_answered_with_a_code(channel, method, count):
    rng = random.Random(method.name)
    kind = message_class(method.input_type.full_name)
    valid = kind(**VALID[method.name]).SerializeToString()
    for _ in range(count):
        data = changed(valid, rng)
        for code in codes(channel, method, data):
            assert code != "INTERNAL_SERVER_ERROR", data


def test_every_call_is_tested():
    assert {method.name for method in CALLS} == set(VALID)
    assert PACKAGE in SERVICE
