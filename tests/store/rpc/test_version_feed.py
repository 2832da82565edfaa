"""All watchers of a broker share one poll of its version, which stops with the last watcher."""

import asyncio

import pytest
from pyrocket.broker.broker import Version
from pyrocket.rpc.version_feed import IDLE_S, VersionFeed


def version(number):
    return Version(number, number, 0, 0, False)


def test_every_watcher_gets_every_new_version_until_the_feed_stops():
    now, looks = [version(1)], []

    def look():
        looks.append(1)
        return now[0]

    async def check():
        feed = VersionFeed(look)
        assert await feed.after(None) == version(1)
        watchers = [asyncio.ensure_future(feed.after(version(1))) for _ in range(50)]
        await asyncio.sleep(4 * IDLE_S)
        assert not any(watcher.done() for watcher in watchers)
        now[0] = version(2)
        assert set(await asyncio.gather(*watchers)) == {version(2)}
        assert len(looks) < 50
        await asyncio.sleep(2 * IDLE_S)
        seen = len(looks)
        await asyncio.sleep(4 * IDLE_S)
        assert len(looks) == seen
        last = asyncio.ensure_future(feed.after(version(2)))
        await asyncio.sleep(0)
        await feed.stop()
        assert await last is None

    asyncio.run(check())


def test_an_error_while_polling_reaches_the_waiting_clients():
    async def check():
        answers = [version(1), version(1), OSError("gone")]

        def look():
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, OSError):
                raise answer
            return answer

        feed = VersionFeed(look)
        with pytest.raises(OSError, match="gone"):
            await asyncio.wait_for(feed.after(version(1)), 5)

    asyncio.run(check())
