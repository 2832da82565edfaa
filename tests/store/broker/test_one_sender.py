"""All writes of a broker share one sender, and thus one group append."""

from collections import Counter

import pytest
from pyrocket import Message, MessageQueue, SinkBatch, Store
from pyrocket.broker.broker import Broker
from pyrocket.broker.client_calls import ClientCalls
from pyrocket.engine.message_encoder import MessageEncoder
from pyrocket.engine.sender import GroupAppend, Sender
from pyrocket.values.message import OutgoingMessage


@pytest.fixture
def made(monkeypatch):
    """Count the objects of some classes that are made."""
    counts = Counter()

    def counted(kind):
        init = kind.__init__

        def counting(self, *arguments):
            counts[kind] += 1
            init(self, *arguments)

        return counting

    for kind in (Sender, GroupAppend, MessageEncoder):
        monkeypatch.setattr(kind, "__init__", counted(kind))
    return counts


def test_a_broker_has_one_sender_and_one_encoder(tmp_path, made):
    store = Store.open(tmp_path / "store", create=True)
    broker = Broker(store)
    queue = MessageQueue("t", store.broker_name, 0)
    outgoing = OutgoingMessage(Message(topic="t", body=b""), b"1", "id", 1)
    clients = ClientCalls(broker)
    clients.send(queue, [outgoing]).result(20)
    clients.send_half("g", queue, outgoing, None)
    store.append(Message(topic="t", body=b"2"))
    with store.sink.stage(SinkBatch(identity="q", target="t", batch=0), partition=0, attempt=0):
        pass
    assert broker.pop
    broker.close()
    assert made == {Sender: 1, GroupAppend: 1, MessageEncoder: 1}
