"""Clients and brokers of other releases: recorded sessions still work in both directions."""

import json
import re
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from golden.wire_session import FOLDER, SERVICE, STREAMS, answering, ask, session
from pyrocket import Client, Connection, Store
from pyrocket.errors import UnsupportedError
from pyrocket.wire.descriptors import message_class, service
from support.broker import served

UNKNOWN_FIELD = b"\xc2\x3e\x02hi"
"""Field 1000, which a later release may have added."""

LATER_FIELDS = {"GroupConfig": ["fifo", "backoff"]}
"""Fields that were added to replies after the session was recorded; earlier clients ignore them."""

VARYING = {"Hello", "Mark", "Holds"}
"""Calls whose replies contain times."""


@pytest.fixture(params=sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def recorded(request):
    return json.loads(request.param.read_text())


@pytest.fixture(params=[b"", UNKNOWN_FIELD], ids=["as recorded", "with a field of later"])
def more(request):
    return request.param


def test_this_client_understands_the_brokers_of_other_releases(recorded, more):
    replies = defaultdict(deque)
    for name, _, answers in recorded["calls"]:
        raw = b"" if name in STREAMS else more
        replies[name].append([bytes.fromhex(each) + raw for each in answers])

    def answer(name, _):
        # A client may call Hello again.
        return replies[name].popleft() if len(replies[name]) > 1 else replies[name][0]

    with answering(answer) as address:
        assert session(address) == recorded["seen"]


def test_this_broker_understands_the_clients_of_other_releases(recorded, more, tmp_path):
    path = tmp_path / "store"
    Store.open(path, create=True).close()
    note = path / "pyrocket" / "store.json"
    note.write_text(
        note.read_text().replace(json.loads(note.read_text())["uuid"], recorded["store"])
    )
    store = Store.open(path)
    assert store.uuid == recorded["store"]
    methods = service(SERVICE).methods_by_name
    with served(store) as address, grpc.insecure_channel(address) as channel:
        for name, sent, expected in recorded["calls"]:
            if name == "Watch":
                continue
            first, *rest = map(bytes.fromhex, sent)
            found = ask(channel, name, [first + more, *rest])
            assert len(found) == len(expected), name
            if name in STREAMS or name in VARYING:
                continue
            kind = message_class(methods[name].output_type.full_name)
            assert _known(kind, found[0]) == _known(kind, bytes.fromhex(expected[0])), name


def _known(kind, data):
    """Return the message without fields added later, and without the random ids of topics."""
    message = kind.FromString(re.sub(rb"[0-9a-f]{32}", bytes(32), data))
    _clear_later_fields(message)
    return message


def _clear_later_fields(message):
    for name in LATER_FIELDS.get(message.DESCRIPTOR.name, ()):
        message.ClearField(name)
    for field, value in message.ListFields():
        if field.message_type and not field.message_type.GetOptions().map_entry:
            for each in [value] if hasattr(value, "ListFields") else value:
                _clear_later_fields(each)


@pytest.mark.parametrize(
    ("missing", "code"), [("Hello", "PROTOCOL_UNKNOWN"), ("Topics", "PROTOCOL_OLDER")]
)
def test_the_error_names_a_call_that_the_server_does_not_implement(recorded, missing, code):
    replies = {name: answers for name, _, answers in recorded["calls"]}

    class Calls(grpc.GenericRpcHandler):
        def service(self, details):
            name = details.method.rpartition("/")[2]
            reply = bytes.fromhex(replies[name][0])
            unary = grpc.unary_unary_rpc_method_handler(lambda *_: reply)
            return None if name == missing else unary

    server = grpc.server(ThreadPoolExecutor(1), handlers=(Calls(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    client = Client(Connection(address))
    with pytest.raises(UnsupportedError, match=address) as caught:
        client.call("Topics")
    assert caught.value.code == code
    assert caught.value.remedy
    client.close()
    server.stop(0).wait()
