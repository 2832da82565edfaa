"""The routes of topics that a client uses. Source: `MQClientInstance.updateTopicRouteInfo...`."""

import asyncio
import logging
from collections.abc import Callable

from pyrocket.client.transport import ClientTransport, TopicRoute
from pyrocket.errors import PyrocketError, TransportError

REFRESH_S = 30

_log = logging.getLogger(__name__)


class Routes:
    """Keeps the route of each topic for 30 s. Used by one event loop."""

    def __init__(self, transport: ClientTransport) -> None:
        self._transport = transport
        self._known: dict[str, tuple[float, TopicRoute]] = {}

    async def get(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """Return the route of a topic; with `fresh`, ask the brokers for it.

        If a known route cannot be refreshed, it remains in use. Raises TopicNotFoundError, and
        TransportError for an unknown topic.
        """
        now = asyncio.get_running_loop().time()
        known = self._known.get(topic)
        if known is not None and not fresh and now - known[0] < REFRESH_S:
            return known[1]
        try:
            found = await self._transport.route(topic)
        except TransportError as error:
            if known is None or fresh:
                raise
            _log.warning("the old route of %s remains in use: %s", topic, error)
            return known[1]
        self._known[topic] = now, found
        return found

    def known(self) -> dict[str, TopicRoute]:
        """Return the routes that were used so far."""
        return {topic: route for topic, (_, route) in [*self._known.items()]}

    async def refresh(self, changed: Callable[[str], None]) -> None:
        """Ask for all known routes; call `changed` with each topic that has changed."""
        for topic, (_, before) in [*self._known.items()]:
            try:
                after = await self.get(topic, fresh=True)
            except PyrocketError as error:
                _log.warning("the old route of %s remains in use: %s", topic, error)
                continue
            if after != before:
                changed(topic)
