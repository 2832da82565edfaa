r"""No string of any call becomes another property of a message: `\x01` and `\x02` separate them."""

from contextlib import suppress
from itertools import product

import grpc
import pytest
from pyrocket import Message, Store
from pyrocket.config import StoreConfig
from pyrocket.engine.message_encoder import MessageEncoder, Origin, TopicRoute
from pyrocket.errors import MessageError
from pyrocket.formats.system_topics import HALF_TOPIC, TIMER_TOPIC
from pyrocket.rpc.descriptors import message_class, service
from pyrocket.rpc.messaging.interface import SERVICE as MESSAGING
from pyrocket.tools.verify.verify import verify
from support.broker import served

SERVICES = ("pyrocket.v1.Broker", "pyrocket.v1.Clients", MESSAGING)
CALLS = [(name, method) for name in SERVICES for method in service(name).methods]
PATH = "../../../a/../b"
EVIL = "a\x02TRAN_MSG\x01true\x02KEYS\x01evil\x02TAGS\x01evil\x02DELAY\x013"
TEXTS = {"topic": "t", "topics": "t", "group": "g", "broker": "broker-a", "name": "t"}
"""Values of fields with which the calls succeed; other texts are `x`."""

SKIPPED = ("Flush", "Watch", "Telemetry", "Notifications", "Clean", "DeleteTopic", "DeleteGroup")
"""Calls that store no strings, wait for the client, or delete what others need."""


def filled(kind, path=(), evil=None, depth=0, text_of_evil=EVIL):
    """Return a request with a value in each field, and the paths of its strings.

    The string at the path `evil` is `text_of_evil`.
    """
    message, paths = kind(), []
    if depth > 5:
        return message, paths
    for field in message.DESCRIPTOR.fields:
        here = (*path, field.name)
        inner = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].type == field.TYPE_STRING:
                paths += [(*here, "key"), (*here, "value")]
                key, value = (text_of_evil if evil == one else "x" for one in paths[-2:])
                inner[key] = value
        elif field.message_type:
            child = message_class(field.message_type.full_name)
            made, found = filled(child, here, evil, depth + 1, text_of_evil)
            paths += found
            (inner.add() if hasattr(inner, "add") else inner).MergeFrom(made)
        elif field.type == field.TYPE_STRING:
            paths.append(here)
            text = text_of_evil if evil == here else TEXTS.get(field.name, "x")
            inner.append(text) if hasattr(inner, "append") else setattr(message, field.name, text)
        elif field.name == "body":
            message.body = b"body"
    return message, paths


def send(channel, name, method, request):
    """Make a call, and return whether it succeeded."""
    call = channel.stream_stream if method.client_streaming else channel.unary_stream
    data, metadata = request.SerializeToString(), (("x-mq-client-id", "c"),)
    given = iter([data, b""]) if method.client_streaming else data
    with suppress(grpc.RpcError):
        for _ in call(f"/{name}/{method.name}")(given, timeout=10, metadata=metadata):
            pass
        return True
    return False


def test_no_string_of_any_call_becomes_a_property(tmp_path, caplog):
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("t")
    store.groups.create("g")
    with served(store) as address, grpc.insecure_channel(address) as channel:
        for name, method in CALLS:
            if method.name in SKIPPED:
                continue
            kind = message_class(method.input_type.full_name)
            request, paths = filled(kind)
            succeeded = send(channel, name, method, request)
            assert succeeded or method.name not in ("Send", "SendMessages", "SendHalf")
            for path, evil in product(paths, (EVIL, PATH)):
                send(channel, name, method, filled(kind, evil=path, text_of_evil=evil)[0])
    assert [one.name for one in tmp_path.iterdir()] == ["store"]
    assert [one.exc_text for one in caplog.records if one.exc_info] == []
    assert verify(tmp_path / "store").ok
    with Store.open(tmp_path / "store", read_only=True) as store:
        for topic in ("t", "x", HALF_TOPIC, TIMER_TOPIC):
            for number in store.offsets(topic) if topic in store.topics.all() else ():
                for one in store.read(topic, number, store.offsets(topic)[number].minimum):
                    assert "evil" not in one.properties.values()


@pytest.mark.parametrize("field", ["unique_id", "properties"])
def test_the_encoder_names_the_property(field):
    encoder = MessageEncoder(StoreConfig(), lambda: 1)
    given = {"unique_id": "i", "born_timestamp": 1, "properties": {"PGROUP": "g"}}
    given[field] = EVIL if field == "unique_id" else {"PGROUP": EVIL}
    name = "UNIQ_KEY" if field == "unique_id" else "PGROUP"
    with pytest.raises(MessageError, match=f"'{name}' contains"):
        encoder.encode_message(Message(topic="t", body=b"1"), TopicRoute("t", 1), Origin(**given))
