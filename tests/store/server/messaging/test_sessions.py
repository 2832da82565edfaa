"""The broker limits the state that it keeps for clients."""

import asyncio

import pytest
from pyrocket import Store
from pyrocket.server.messaging import sessions
from pyrocket.server.messaging.interface import number
from pyrocket.server.messaging.sessions import MAX_TOPICS, Sessions, Stream
from pyrocket.server.messaging.telemetry import MAX_SETTINGS_BYTES
from pyrocket.wire.descriptors import message_class
from support.broker import served
from support.rocketmq_stub import Stub, code_of, resource


def with_streams(sessions, count):
    """Connect clients that make no further calls."""

    async def connect():
        return [sessions.connect(("", f"silent{n}"), Stream()) for n in range(count)]

    return asyncio.run(connect())


def test_the_number_of_clients_without_a_stream_is_limited(monkeypatch):
    monkeypatch.setattr(sessions, "MAX_CLIENTS", 100)
    known = Sessions()
    connected = with_streams(known, 50)
    for n in range(1000):
        known.seen(("", f"c{n}"))
    assert len(known) <= 100 + len(connected)
    assert all(known.find(one.key) is one for one in connected)
    assert known.find(("", "c999")) is not None


def test_a_stream_accepts_further_commands_when_earlier_ones_were_sent(monkeypatch):
    monkeypatch.setattr(sessions, "MAX_COMMANDS", 3)

    async def offered():
        stream, command = Stream(), message_class("pyrocket.v1.Version")()
        first = [stream.offer(command) for _ in range(4)]
        for _ in range(3):
            await stream.next()
        return first, [stream.offer(command) for _ in range(4)]

    accepted = [True, True, True, False]
    assert asyncio.run(offered()) == (accepted, accepted)


def test_inactive_clients_are_removed(monkeypatch):
    known = Sessions()
    with_streams(known, 3)
    monkeypatch.setattr(sessions, "_IDLE_S", -1)
    for n in range(20):
        known.seen(("", f"c{n}"))
    assert len(known) < 10


def test_only_the_most_recent_topics_of_a_client_are_kept():
    known = Sessions()
    (session,) = with_streams(known, 1)
    known.publishes(session, [f"set{n}" for n in range(2 * MAX_TOPICS)])
    for n in range(10):
        known.sends_to(session.key, "often")
        known.sends_to(session.key, f"sent{n}")
    assert len(session.topics) == len(known.topics()) == MAX_TOPICS
    assert {"often", "sent9", f"set{2 * MAX_TOPICS - 1}"} <= {*session.topics}
    assert known.producers("often") == [session.stream]
    assert not known.producers("set0")


@pytest.mark.parametrize(("size", "code"), [(MAX_SETTINGS_BYTES, "BAD_REQUEST"), (1000, "OK")])
def test_the_size_of_settings_is_limited(tmp_path, size, code):
    topics = [resource("t" * 100)] * (size // 100)
    with served(Store.open(tmp_path / "store", create=True)) as address:
        stub = Stub(address)
        agent = {"language": number("Language", "PYTHON")}
        with stub.telemetry(user_agent=agent, publishing={"topics": topics}) as commands:
            assert code_of(next(commands)) == code
        stub.close()
