r"""No string of any call becomes another property of a message, a path, or a traceback.

`\x01` and `\x02` separate properties.
"""

from contextlib import suppress
from itertools import product

import grpc
import pytest
from pyrocket import Message, Store
from pyrocket.base.config import StoreConfig
from pyrocket.engine.message_encoder import AppendRoute, MessageEncoder, Origin
from pyrocket.errors import MessageError
from pyrocket.formats.system_topics import HALF_TOPIC, TIMER_TOPIC
from pyrocket.server.messaging.interface import SERVICE as MESSAGING
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.tools.verify.verify import verify
from pyrocket.wire.channel import NAME_SERVER
from pyrocket.wire.descriptors import message_class, service
from support.broker import served
from support.name_server import serving

HEALTH = "grpc.health.v1.Health"
BROKER = ("pyrocket.v1.Broker", "pyrocket.v1.Clients", MESSAGING, HEALTH)
NAMES = (NAME_SERVER, MESSAGING, HEALTH)
PATH = "../../../a/../b"
EVIL = "a\x02TRAN_MSG\x01true\x02KEYS\x01evil\x02TAGS\x01evil\x02DELAY\x013"
LONG = "x" * (1 << 20)
SURROGATE = "SURROGATE"
"""Sent as the bytes of a lone surrogate, which no string may have."""

EACH = [6, pytest.param(1, marks=pytest.mark.heavy)]
"""The heavy run sends each text of `EVILS` in each string, every other run one of them."""

EVILS = (EVIL, PATH, "a\0b", "a\nb\r\n", LONG, SURROGATE)
TEXTS = {
    "topic": "t",
    "topics": "t",
    "group": "g",
    "broker": "broker-a",
    "name": "t",
    "message_model": "CLUSTERING",
    "consume_from": "last",
    "kind": "TAG",
    "service": "",
}
"""Values of fields with which the calls succeed; other texts are `x`."""

STREAMS = ("Watch", "Telemetry", "Notifications", "Register")
"""Calls that stay open: they are cancelled soon."""

DELETING = ("Clean", "DeleteTopic", "DeleteGroup")
"""Calls that delete what others need: only fields that make them fail are sent."""


class Filler:
    """Fills requests: each field has a value, and the string at the path `evil` is `text`."""

    def __init__(self, evil=None, text=""):
        self._evil, self._text = evil, text
        self.paths = []

    def filled(self, kind, path=()):
        """Return a request, and add the paths of its strings to `paths`."""
        message = kind()
        for field in message.DESCRIPTOR.fields if len(path) < 6 else ():
            self._fill(message, field, (*path, field.name))
        return message

    def _fill(self, message, field, here):
        inner = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            is_text = field.message_type.fields_by_name["key"].type == field.TYPE_STRING
            key = self._string((*here, "key"), TEXTS.get(here[-1], "t")) if is_text else 1
            if value.message_type:
                inner[key].MergeFrom(self._message(value, (*here, "value")))
            elif value.type == field.TYPE_STRING:
                inner[key] = self._string((*here, "value"), "x")
            else:
                inner[key] = 1
        elif field.message_type:
            (inner.add() if hasattr(inner, "add") else inner).MergeFrom(self._message(field, here))
        elif field.type == field.TYPE_STRING:
            text = self._string(here, TEXTS.get(field.name, "x"))
            inner.append(text) if hasattr(inner, "append") else setattr(message, field.name, text)
        elif field.name == "body":
            message.body = b"body"

    def _message(self, field, path):
        return self.filled(message_class(field.message_type.full_name), path)

    def _string(self, path, otherwise):
        self.paths.append(path)
        return self._text if path == self._evil else otherwise


def send(channel, name, method, request):
    """Make a call, and return whether it succeeded."""
    call = channel.stream_stream if method.client_streaming else channel.unary_stream
    data, metadata = request.SerializeToString(), (("x-mq-client-id", "c"),)
    data = data.replace(SURROGATE.encode(), b"\xed\xa0\x80" * 3)
    given = iter([data, b""]) if method.client_streaming else data
    seconds = 0.1 if method.name in STREAMS else 10
    with suppress(grpc.RpcError):
        for _ in call(f"/{name}/{method.name}")(given, timeout=seconds, metadata=metadata):
            pass
        return True
    return False


def send_all(channel, services, every):
    """Make each call of some services with strings of its request replaced, one at a time; return
    the calls that succeed with valid strings.
    """
    succeeded = set()
    for name in services:
        for method in service(name).methods:
            kind = message_class(method.input_type.full_name)
            filler = Filler()
            request = filler.filled(kind)
            if method.name not in DELETING and send(channel, name, method, request):
                succeeded.add(method.name)
            for number, (path, evil) in enumerate(product(filler.paths, EVILS)):
                if (number + number // len(EVILS)) % every == 0:
                    send(channel, name, method, Filler(path, evil).filled(kind))
    return succeeded


@pytest.mark.parametrize("every", EACH)
def test_no_string_of_any_call_of_a_broker_does_harm(tmp_path, caplog, every):
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("t")
    store.groups.create("g")
    with served(store, long_poll=0.05) as address, grpc.insecure_channel(address) as channel:
        succeeded = send_all(channel, BROKER, every)
    assert {"SendMessages", "SendHalf", "Flush", "JoinGroups"} <= succeeded
    assert [one.name for one in tmp_path.iterdir()] == ["store"]
    assert [one.exc_text for one in caplog.records if one.exc_info] == []
    assert verify(tmp_path / "store").ok
    own = [*(tmp_path / "store" / "config").rglob("*"), *(tmp_path / "store").rglob("*.json")]
    assert max(one.stat().st_size for one in own) < 1 << 20
    with Store.open(tmp_path / "store", read_only=True) as store:
        for topic in ("t", "x", HALF_TOPIC, TIMER_TOPIC):
            for number in store.offsets(topic) if topic in store.topics.all() else ():
                for one in store.read(topic, number, store.offsets(topic)[number].minimum):
                    assert "evil" not in one.properties.values()


@pytest.mark.parametrize("every", EACH)
def test_no_string_of_any_call_of_a_name_server_does_harm(caplog, every):
    table = RouteTable()
    with serving(table) as address, grpc.insecure_channel(address) as channel:
        assert {"Routes", "ClusterTopics", "Brokers", "Check"} <= send_all(channel, NAMES, every)
    assert [one.exc_text for one in caplog.records if one.exc_info] == []
    assert len(str(table.brokers())) < 10_000


@pytest.mark.parametrize("field", ["unique_id", "properties"])
def test_the_encoder_names_the_property(field):
    encoder = MessageEncoder(StoreConfig(), lambda: 1)
    given = {"unique_id": "i", "born_timestamp": 1, "properties": {"PGROUP": "g"}}
    given[field] = EVIL if field == "unique_id" else {"PGROUP": EVIL}
    name = "UNIQ_KEY" if field == "unique_id" else "PGROUP"
    with pytest.raises(MessageError, match=f"'{name}' contains"):
        encoder.encode_message(Message(topic="t", body=b"1"), AppendRoute("t", 1), Origin(**given))
