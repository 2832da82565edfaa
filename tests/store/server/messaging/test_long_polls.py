"""Calls that wait for messages, in an event loop."""

import asyncio
from types import SimpleNamespace

import pytest
from pyrocket.broker.polls import Holds
from pyrocket.server.messaging.long_polls import wait_for_messages
from pyrocket.server.messaging.sessions import ClientSession


@pytest.fixture
def holds():
    return Holds()


@pytest.fixture
def broker(holds):
    def visible_in(group, topic, ms):
        for hold in holds.visible(group, topic):
            hold.waiter()

    return SimpleNamespace(polls=SimpleNamespace(holds=holds, visible_in=visible_in))


def test_polls_that_wake_each_other_leave_nothing_parked(holds, broker):
    messages = []

    async def look():
        await asyncio.sleep(0)
        return SimpleNamespace(messages=[messages.pop()] if messages else [], has_more=False)

    async def run():
        deadline, session = asyncio.get_running_loop().time() + 20, ClientSession(("", "c"))
        waiting = [
            asyncio.ensure_future(
                wait_for_messages(broker, ("g", "t", None), session, deadline, look)
            )
            for _ in range(4)
        ]
        while len(holds) < 4:
            await asyncio.sleep(0)
        for count in (2, 2):
            messages.extend(range(count))
            for hold in holds.arrived("t", 0):
                hold.waiter()
            while messages:
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            assert len(holds) == sum(not one.done() for one in waiting)
        return await asyncio.gather(*waiting)

    found = asyncio.run(asyncio.wait_for(run(), 10))
    assert [len(one.messages) for one in found] == [1, 1, 1, 1]
