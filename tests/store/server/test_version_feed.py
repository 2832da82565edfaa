"""All watchers of a broker share one read of its version after each change."""

import asyncio
import threading
import time

import pytest
from pyrocket import Message, Store
from pyrocket.server.version_feed import INTERVAL_S, VersionFeed
from pyrocket.store import call_on_change
from pyrocket.values.source import Version

WAIT_S = 30


def version(number):
    return Version(number, number, 0, 0, False)


class Changing:
    """A version that a test changes, and the number of times that it was read."""

    def __init__(self):
        self.number, self.reads = 1, 0

    def __call__(self):
        self.reads += 1
        return version(self.number)


def test_every_watcher_gets_every_new_version_until_the_feed_stops():
    async def check():
        store = Changing()
        feed = VersionFeed(store)
        assert await feed.after(None) == version(1)
        watchers = [asyncio.ensure_future(feed.after(version(1))) for _ in range(50)]
        await asyncio.sleep(4 * INTERVAL_S)
        assert not any(watcher.done() for watcher in watchers)
        store.number = 2
        threading.Thread(target=feed.changed).start()
        assert set(await asyncio.wait_for(asyncio.gather(*watchers), WAIT_S)) == {version(2)}
        last = asyncio.ensure_future(feed.after(version(2)))
        await asyncio.sleep(0)
        feed.stop()
        assert await last is None

    asyncio.run(check())


def test_an_unchanged_store_is_not_read_again():
    async def check():
        store = Changing()
        feed = VersionFeed(store)
        watcher = asyncio.ensure_future(feed.after(version(1)))
        await asyncio.sleep(10 * INTERVAL_S)
        assert store.reads == 1
        watcher.cancel()

    asyncio.run(check())


def test_a_change_without_watchers_is_announced_to_the_next_watcher():
    async def check():
        store = Changing()
        feed = VersionFeed(store)
        store.number = 2
        for _ in range(100):
            feed.changed()
        await asyncio.sleep(2 * INTERVAL_S)
        assert store.reads == 1
        assert await asyncio.wait_for(feed.after(version(1)), WAIT_S) == version(2)

    asyncio.run(check())


def test_many_changes_cause_few_reads_and_the_last_change_is_announced():
    async def check():
        store = Changing()
        feed = VersionFeed(store)

        def change():
            for store.number in range(2, 2002):
                feed.changed()

        seen, began = version(1), time.monotonic()
        thread = threading.Thread(target=change)
        thread.start()
        while seen != version(2001):
            seen = await asyncio.wait_for(feed.after(seen), WAIT_S)
        assert store.reads <= 2 + (time.monotonic() - began) / INTERVAL_S
        thread.join()

    asyncio.run(check())


def test_an_error_during_a_read_is_raised_to_waiting_clients_and_the_next_client_reads_again():
    async def check():
        answers = [version(1), OSError("gone"), version(2)]

        def look():
            answer = answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return answer

        feed = VersionFeed(look)
        watcher = asyncio.ensure_future(feed.after(version(1)))
        await asyncio.sleep(0)
        feed.changed()
        with pytest.raises(OSError, match="gone"):
            await asyncio.wait_for(watcher, WAIT_S)
        assert await asyncio.wait_for(feed.after(version(1)), WAIT_S) == version(2)

    asyncio.run(check())


def test_a_change_after_the_end_of_the_event_loop_is_ignored():
    async def made():
        return VersionFeed(Changing())

    asyncio.run(made()).changed()


def test_each_change_of_a_store_is_announced(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        positions = []
        call_on_change(store, lambda: positions.append(store.position()))
        seen = []
        for change in (
            lambda: store.topics.create("T"),
            lambda: store.append(Message(topic="T", body=b"x")),
            lambda: store.append(Message(topic="T", body=b"y", delay_level=1)),
            lambda: store.clean(hours=0),
            lambda: store.topics.delete("T"),
        ):
            change()
            assert positions[-1] == store.position(), change
            seen.append(positions[-1])
        assert len(set(seen)) >= 4
