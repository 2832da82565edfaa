"""Follows the notifications of brokers: changes of groups, and half messages to be decided."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyrocket.base.failures import Failures
from pyrocket.errors import PyrocketError
from pyrocket.remote.broker import RemoteBroker

_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 20.0

_Received = Callable[[Any], None]
"""Called with a notification; with None after notifications may have been lost."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Watch:
    received: _Received
    request: dict[str, str]
    tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)


class Notifications:
    """The streams of one transport, from every broker for every watch. Used by one event loop."""

    def __init__(self, broker: Callable[[str], RemoteBroker]) -> None:
        """`broker` returns a broker by name."""
        self._broker = broker
        self._names, self._failures = set[str](), Failures()
        self._watches: set[_Watch] = set()

    def watch(self, received: _Received, **request: str) -> Callable[[], None]:
        """Follow the notifications that `request` names; return a function to stop."""
        watch = _Watch(received, request)
        self._watches.add(watch)
        for name in self._names:
            self._follow(watch, name)

        def stop() -> None:
            self._watches.discard(watch)
            for task in watch.tasks.values():
                task.cancel()

        return stop

    def add(self, broker: str) -> None:
        """Follow a broker that is new, or has a new address."""
        self._names.add(broker)
        for watch in self._watches:
            if broker in watch.tasks:
                watch.tasks[broker].cancel()
            self._follow(watch, broker)

    def remove(self, broker: str) -> None:
        """Stop following a broker."""
        self._names.discard(broker)
        for watch in self._watches:
            if (task := watch.tasks.pop(broker, None)) is not None:
                task.cancel()

    def close(self) -> None:
        """Stop following all brokers."""
        for watch in self._watches:
            for task in watch.tasks.values():
                task.cancel()

    def _follow(self, watch: _Watch, broker: str) -> None:
        watch.tasks[broker] = asyncio.ensure_future(self._repeat(watch, broker))

    async def _repeat(self, watch: _Watch, broker: str) -> None:
        """Read a stream, and open it again whenever it ends."""
        pause = _PAUSE_S
        while True:
            try:
                async for notification in self._broker(broker).stream(
                    "Notifications", **watch.request
                ):
                    pause = _PAUSE_S
                    watch.received(notification)
            except PyrocketError as error:
                _log.info("the notifications of %s are followed again later: %s", broker, error)
            except Exception as error:
                self._failures.task(f"the notifications of {broker} are followed again", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            watch.received(None)
