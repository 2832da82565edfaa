"""`RemoteInvoker`: makes the calls of producers and consumers to brokers, over `pyrocket.v1`.

The addresses are those of brokers, each of which may have queues of a topic, or those of name
servers. The answer to the first call shows which.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar

from pyrocket.base.credentials import Credentials
from pyrocket.client.transport import ClientTransport, OnNotification, pulled
from pyrocket.errors import PyrocketError
from pyrocket.metadata.topics import check_topic_name
from pyrocket.remote.broker import CALL_S
from pyrocket.remote.brokers import RemoteBrokers
from pyrocket.remote.lookup import AddressUrl
from pyrocket.values.consuming import Pull, Pulled, RawPulled
from pyrocket.values.routes import TopicSettings
from pyrocket.values.transactions import Undecided
from pyrocket.wire.channel import CLIENTS, SERVICE
from pyrocket.wire.messages import value_of

_PULL_S = 15
"""Time after the hold of a pull until it counts as lost: 30 s in all, as in RocketMQ."""

_BULK = frozenset({"Topics", "Bounds", "OffsetsAt", "Lag"})
"""The calls of `pyrocket.v1.Broker`; all others are calls of `pyrocket.v1.Clients`."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class RemoteInvoker:
    """The `Invoker` of one instance. Used by one event loop."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        """Clients call `connect`."""
        self._brokers, self.create, self.close = brokers, brokers.create, brokers.close

    async def invoke(
        self, broker: str, call: str, reply: type[_T] | UnionType, /, **arguments: Any
    ) -> _T:
        of, sent = SERVICE if call in _BULK else CLIENTS, _sendable(arguments)
        raw = await self._brokers.get(broker).call(call, of, CALL_S, **sent)
        return value_of(raw, reply)

    async def pull(self, request: Pull) -> Pulled:
        broker, seconds = self._brokers.get(request.queue.broker), request.hold_ms / 1000 + _PULL_S
        reply = await broker.call_and_wait("PullQueue", seconds, **vars(request))
        return pulled(value_of(reply, RawPulled))

    async def brokers(self) -> Sequence[str]:
        """Return the names of all brokers, also of those that were started later."""
        try:
            await self._brokers.find()
        except PyrocketError as error:
            _log.warning("only the brokers that are known are used: %s", error)
        return self._brokers.names

    async def topics(self, topic: str) -> TopicSettings:
        """Return the settings of a topic at all brokers that can be reached."""
        check_topic_name(topic)
        return await self._brokers.topics(topic)

    def watch(self, received: OnNotification, **request: str) -> Callable[[], None]:
        """Follow the notifications that `request` names; return a function to stop."""

        def decode(raw: Any) -> None:
            has_check = raw is not None and raw.HasField("check")
            received(value_of(raw.check, Undecided) if has_check else None)

        return self._brokers.watch(decode, **request)


async def connect(
    addresses: Sequence[str] | AddressUrl, credentials: Credentials
) -> ClientTransport:
    """Connect to brokers or name servers.

    Raises TransportError if none can be reached, UnsupportedError, NotAuthenticatedError.
    """
    brokers = RemoteBrokers(addresses, credentials)
    try:
        await brokers.find()
    except BaseException:
        await brokers.close()
        raise
    return ClientTransport(RemoteInvoker(brokers))


def _sendable(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments whose messages have bodies that are sent once, and sequences of keys."""
    if "messages" in arguments:
        return {**arguments, "messages": [message.as_sent() for message in arguments["messages"]]}
    if "message" in arguments:
        return {**arguments, "message": arguments["message"].as_sent()}
    return arguments
