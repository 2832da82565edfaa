"""The routes of topics that a client uses. Source: `MQClientInstance.updateTopicRouteInfo...`."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from pyrocket.client.transport import ClientTransport, TopicRoute
from pyrocket.errors import PyrocketError, TopicNotFoundError, TransportError

REFRESH_S = 30
SUSPECT_S = 1
"""The age from which a route is asked for again after a failed send."""

PATIENCE_S = 1
"""How long the user of an old route waits for the new one."""

_log = logging.getLogger(__name__)


class Routes:
    """Keeps the route of each topic for 30 s. Used by one event loop."""

    def __init__(self, transport: ClientTransport) -> None:
        self._transport = transport
        self._known: dict[str, TopicRoute] = {}
        self._asked_s: dict[str, float] = {}
        self._running: dict[tuple[str, str], asyncio.Task[TopicRoute]] = {}

    async def get(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """Return the route of a topic; with `fresh`, ask the brokers for it.

        If a known route cannot be refreshed within a second, it remains in use. Raises
        TopicNotFoundError, and TransportError for an unknown topic.
        """
        if fresh:
            return await self._ask(topic)
        if topic not in self._known:
            return await asyncio.shield(self._once("ask", topic, self._ask))
        if self._age_s(topic) < REFRESH_S:
            return self._known[topic]
        asking = self._once("ask", topic, self._ask)
        await asyncio.wait([asking], timeout=PATIENCE_S)
        is_unanswered = not asking.done() or isinstance(asking.exception(), TransportError)
        return self._known[topic] if is_unanswered else asking.result()

    async def created(self, topic: str) -> TopicRoute:
        """Return the route of a missing topic, which is created; see `ClientTransport`."""
        return await asyncio.shield(self._once("create", topic, self._create))

    def suspect(self, topic: str) -> None:
        """Ask for a route again, because a send has failed; at most once a second."""
        if topic in self._known and self._age_s(topic) >= SUSPECT_S:
            self._once("ask", topic, self._ask)

    async def refresh(self, changed: Callable[[str], None]) -> None:
        """Ask for all known routes; call `changed` with each topic that has changed."""
        for topic, before in [*self._known.items()]:
            if await self._again(topic) != before:
                changed(topic)

    async def _again(self, topic: str) -> TopicRoute | None:
        """Return the current route of a known topic; None if it was deleted."""
        try:
            return await self.get(topic, fresh=True)
        except TopicNotFoundError:
            return None
        except PyrocketError as error:
            _log.warning("the old route of %s remains in use: %s", topic, error)
        return self._known.get(topic)

    def _age_s(self, topic: str) -> float:
        return asyncio.get_running_loop().time() - self._asked_s[topic]

    async def _ask(self, topic: str) -> TopicRoute:
        self._asked_s[topic] = asyncio.get_running_loop().time()
        try:
            self._known[topic] = route = await self._transport.route(topic)
        except TopicNotFoundError:
            self._known.pop(topic, None)
            raise
        return route

    async def _create(self, topic: str) -> TopicRoute:
        created = await self._transport.route_if_created(topic)
        self._asked_s[topic] = asyncio.get_running_loop().time()
        self._known[topic] = created
        return created

    def _once(
        self, name: str, topic: str, call: Callable[[str], Coroutine[Any, Any, TopicRoute]]
    ) -> "asyncio.Task[TopicRoute]":
        """Return the task of a call for a topic, which is started unless it runs."""
        running = self._running.get((name, topic))
        if running is not None:
            return running
        task = self._running[name, topic] = asyncio.ensure_future(call(topic))

        def ended(task: "asyncio.Task[TopicRoute]") -> None:
            del self._running[name, topic]
            error = None if task.cancelled() else task.exception()
            if topic in self._known and isinstance(error, PyrocketError):
                _log.warning("the route of %s could not be asked for: %s", topic, error)

        task.add_done_callback(ended)
        return task
