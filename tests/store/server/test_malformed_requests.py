"""Each malformed request is answered with an error code, and the server keeps running."""

import os
import random
from pathlib import Path

import grpc
import pytest
from pyrocket import Store
from pyrocket.remote.client import Connection
from pyrocket.wire.descriptors import message_class, service
from pyrocket.wire.errors import METADATA_KEY
from support.broker import served
from support.broker_process import running

CALLS = [
    method
    for of in ("pyrocket.v1.Broker", "pyrocket.v1.Clients")
    for method in service(of).methods
    if method.name not in ("Watch", "Notifications")
]
QUEUE = {"topic": "t", "broker": "b", "queue_id": 0}
VALID = {
    "Bounds": {"topics": ["t"]},
    "Slices": {"ranges": [{"queue": QUEUE, "end": 9}]},
    "Locate": {"request": {"topics": ["t"], "keys": ["k"], "end_ms": 2**62}},
    "SlicesAt": {"locations": {"topic": "t", "offsets": bytes(8), "sizes": bytes(8)}},
    "ReadView": {"part": {"log_part": {"end": 100}}, "columns": ["body"]},
    "Commit": {"group": "g", "offsets": [{"key": {"topic": "t", "broker": "b"}, "value": 1}]},
    "PlanView": {"view": "commitlog"},
    "SendMessages": {"queue": QUEUE, "messages": [{"body": b"1", "unique_id": "i"}]},
    "SendHalf": {"group": "g", "queue": QUEUE, "message": {"body": b"1", "unique_id": "i"}},
    "JoinGroups": {
        "heartbeat": {"client_id": "c", "consumers": [{"group": "g", "starts": {"t": {}}}]}
    },
    "LockQueues": {"group": "g", "client_id": "c", "queues": [QUEUE]},
    "PullQueue": {"group": "g", "queue": QUEUE, "subscription": {"expression": "a"}},
    "StartOffset": {"group": "g", "queue": QUEUE, "start": {"log_offset": 1}},
    "CommitOffsets": {"group": "g", "offsets": [{"key": QUEUE, "value": 1}]},
    "SendBack": {"group": "g", "queue": QUEUE},
    "Hello": {"release": "0", "protocol": 1},
}


@pytest.fixture(scope="module")
def channel(tmp_path_factory):
    store = Store.open(tmp_path_factory.mktemp("store"), create=True)
    store.topics.create("t")
    with served(store) as address:
        connection = Connection(address)
        yield connection.channel
        connection.close()


def request_of(method, rng):
    """Return a plausible request with some bytes changed, removed or inserted."""
    fields = VALID.get(method.name, {})
    data = bytearray(message_class(method.input_type.full_name)(**fields).SerializeToString())
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
    return bytes(data)


def outcome(channel, method, data):
    """Make a call; return its error, or None if it was answered."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            channel.stream_unary(path)(iter([data]), timeout=20)
        elif method.server_streaming:
            list(channel.unary_stream(path)(data, timeout=20))
        else:
            channel.unary_unary(path)(data, timeout=20)
    except grpc.RpcError as error:
        return error
    return None


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.heavy)])
def test_a_malformed_request_is_answered_with_an_error_code(channel, count, caplog):
    rng = random.Random(7)
    for method in CALLS:
        for _ in range(count):
            data = request_of(method, rng)
            error = outcome(channel, method, data)
            if error is None:
                continue
            known = dict(error.trailing_metadata() or ())
            assert METADATA_KEY in known, (method.name, data, error)
            assert b"BROKER_FAILED" not in known[METADATA_KEY], (method.name, data, error)
    assert not [one.getMessage() for one in caplog.records if one.exc_info]


UNEVEN = {"topic": "t", "offsets": bytes(8)}
HALF_A_NUMBER = {"topic": "t", "offsets": b"1", "log_offsets": b"1", "sizes": b"1"}
INVALID = {
    "uneven arrays": ("SlicesAt", {"locations": UNEVEN}, "LOCATIONS_INVALID"),
    "half a number": ("SlicesAt", {"locations": HALF_A_NUMBER}, "LOCATIONS_INVALID"),
    "unknown view": ("ReadView", {"part": {"table_part": {"view": "x"}}}, "VIEW_UNKNOWN"),
    "view of messages": ("ReadView", {"part": {"table_part": {"view": "dlq"}}}, "VIEW_UNKNOWN"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_input_is_answered_with_its_code_and_not_logged(channel, caplog, case):
    name, fields, code = INVALID[case]
    method = service("pyrocket.v1.Broker").methods_by_name[name]
    request = message_class(method.input_type.full_name)(**fields)
    error = outcome(channel, method, request.SerializeToString())
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert code in error.details()
    assert not caplog.records


@pytest.mark.parametrize("name", ["Check", "Watch"])
def test_a_malformed_health_check_is_answered_with_a_status(channel, caplog, name):
    method = service("grpc.health.v1.Health").methods_by_name[name]
    error = outcome(channel, method, b"\xff" * 9)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert not caplog.records


def test_a_request_that_is_not_a_protobuf_message_is_rejected(channel):
    error = outcome(channel, service("pyrocket.v1.Broker").methods_by_name["Bounds"], b"\xff" * 9)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "REQUEST_MALFORMED" in error.details()


def footprint(process):
    """Return the resident MiB, the threads and the open files of a process."""
    folder = Path("/proc", str(process.pid))
    pages = int((folder / "statm").read_text().split()[1])
    counts = (len([*(folder / name).iterdir()]) for name in ("task", "fd"))
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20, *counts


@pytest.mark.heavy
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_malformed_requests_leak_no_resources(tmp_path):
    """Send 10,000 malformed requests, after 2,000 requests that fill caches and pools."""
    rng = random.Random(8)
    with running(tmp_path / "store") as (process, found):
        connection = Connection(found.listen[0])
        for number in range(12_000):
            if number == 2000:
                before = footprint(process)
            method = rng.choice(CALLS)
            outcome(connection.channel, method, request_of(method, rng))
        after = footprint(process)
        assert process.poll() is None
        topics = service("pyrocket.v1.Broker").methods_by_name["Topics"]
        assert outcome(connection.channel, topics, b"") is None
        connection.close()
    assert after[0] <= before[0] + 32
    assert after[1] <= before[1] + 4
    assert after[2] <= before[2] + 4
