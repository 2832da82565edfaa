"""Telemetry, Heartbeat and NotifyClientTermination.

On the Telemetry stream a client sends its settings, and the broker returns them with its own values
filled in. The broker also sends check requests on this stream.
"""

import asyncio
from typing import Any

from pyrocket.broker.broker import Broker
from pyrocket.broker.pop.values import PopSettings
from pyrocket.errors import GroupNotFoundError
from pyrocket.server.messaging.caller import Caller
from pyrocket.server.messaging.codes import RefusedError, status
from pyrocket.server.messaging.interface import name_of, new, number, put_ms
from pyrocket.server.messaging.sessions import ClientSession, Sessions
from pyrocket.values.admin import GroupConfig

MAX_BATCH = PopSettings.max_batch
MAX_SETTINGS_BYTES = 16 << 10
LONG_POLL_MS = 20_000
_RESEND_S = 1.0
_FRAME_BYTES = (4 << 20) - 65_536
"""Node.js clients receive at most 4 MiB per reply, including everything around the body."""

_PRODUCER_ATTEMPTS = 3
_LITE = ("LITE_PUSH_CONSUMER", "LITE_SIMPLE_CONSUMER")
NODE = "NODE_JS"


class Telemetry:
    """Implements the calls, and maintains the sessions of clients."""

    def __init__(self, broker: Broker, sessions: Sessions) -> None:
        self._broker, self._store, self._sessions = broker, broker.store, sessions

    def heartbeat(self, request: Any, caller: Caller) -> Any:
        """Record that a client is alive. After a restart of the broker, the client may be unknown.

        Send Node.js clients their settings again, because they miss settings that arrive too early.
        """
        _check_client_type(request.client_type)
        groups = [caller.group(request.group)] if request.group.name else []
        caller.admit("Heartbeat", groups=groups)
        session = self._sessions.seen(caller.key)
        if session.language == NODE:
            send_again(session)
        return new("HeartbeatResponse", status=status("OK"))

    def notify_client_termination(self, request: Any, caller: Caller) -> Any:
        """Remove a client."""
        groups = [caller.group(request.group)] if request.group.name else []
        caller.admit("NotifyClientTermination", groups=groups)
        self._sessions.end(caller.key)
        self._broker.release(caller.key)
        return new("NotifyClientTerminationResponse", status=status("OK"))

    def sync_lite_subscription(self, request: Any, caller: Caller) -> Any:
        """Reject the call. Raises RefusedError (UNSUPPORTED)."""
        raise _no_lite()

    def answer(self, command: Any, caller: Caller, session: ClientSession) -> Any:
        """Return the reply to a command; None if there is none. Raises RefusedError."""
        if command.WhichOneof("command") != "settings":
            return None
        size = command.settings.ByteSize()
        if size > MAX_SETTINGS_BYTES:
            raise RefusedError("BAD_REQUEST", f"settings of {size} bytes are too large.")
        _check_client_type(command.settings.client_type)
        settings = new("Settings")
        settings.CopyFrom(command.settings)
        session.language = name_of("Language", settings.user_agent.language)
        kind = settings.WhichOneof("pub_sub")
        if kind == "publishing":
            self._publishing(settings, caller, session)
        elif kind == "subscription":
            self._subscription(settings, caller, session)
        else:
            raise RefusedError("BAD_REQUEST", "the settings have neither topics nor a group.")
        settings.metric.Clear()
        settings.metric.on = False
        reply = new("TelemetryCommand", status=status("OK"), settings=settings)
        session.settings = reply if session.language == NODE else None
        return reply

    def _publishing(self, settings: Any, caller: Caller, session: ClientSession) -> None:
        topics = [caller.topic(topic) for topic in settings.publishing.topics]
        caller.admit("Telemetry", publishing=topics)
        self._sessions.publishes(session, topics)
        longest = self._store.config.max_message_bytes
        if session.language == NODE:
            longest = min(longest, _FRAME_BYTES)
        settings.publishing.max_body_size = longest
        settings.publishing.validate_message_type = True
        policy = settings.backoff_policy
        policy.max_attempts = policy.max_attempts or _PRODUCER_ATTEMPTS
        if not policy.HasField("exponential_backoff"):
            _exponential(policy, initial_ms=10, max_ms=1000, multiplier=2)

    def _subscription(self, settings: Any, caller: Caller, session: ClientSession) -> None:
        mine = settings.subscription
        group = caller.group(mine.group)
        topics = [caller.topic(subscription.topic) for subscription in mine.subscriptions]
        caller.admit("Telemetry", subscribed=topics, groups=[group])
        session.group = group
        config = self._group(group)
        mine.fifo = config.fifo
        mine.receive_batch_size = MAX_BATCH
        put_ms(mine.long_polling_timeout, LONG_POLL_MS)
        settings.backoff_policy.CopyFrom(_retries(config, session.language))

    def _group(self, group: str) -> GroupConfig:
        try:
            return self._broker.consumers.group(group)
        except GroupNotFoundError:
            return GroupConfig(group)


def _check_client_type(number_of_type: int) -> None:
    if name_of("ClientType", number_of_type) in _LITE:
        raise _no_lite()


def _no_lite() -> RefusedError:
    return RefusedError("UNSUPPORTED", "lite topics and lite consumers are not supported.")


def _retries(config: GroupConfig, language: str) -> Any:
    """Return the retry policy in the only form that the client supports."""
    policy, backoff = new("RetryPolicy", max_attempts=config.retry_max_times + 1), config.backoff
    if language == NODE:
        first, last = backoff.delays_ms[0], backoff.delays_ms[-1]
        if backoff.initial_ms:
            first, last = backoff.initial_ms, backoff.max_ms
        _exponential(policy, initial_ms=first, max_ms=last, multiplier=backoff.multiplier)
        return policy
    delays = backoff.delays_ms
    if backoff.initial_ms:
        delays = tuple(map(backoff.delay_ms, range(len(delays))))
    for ms in delays:
        put_ms(policy.customized_backoff.next.add(), ms)
    return policy


def _exponential(policy: Any, *, initial_ms: int, max_ms: int, multiplier: float) -> None:
    backoff = policy.exponential_backoff
    put_ms(backoff.initial, initial_ms)
    put_ms(backoff.max, max_ms)
    backoff.multiplier = multiplier


def send_again(session: ClientSession) -> None:
    """Send a client its settings again."""
    if session.stream is not None and session.settings is not None:
        session.stream.offer(session.settings)


def settings_are_for_node(command: Any) -> bool:
    """Whether a command contains the settings of a Node.js client."""
    language = command.settings.user_agent.language
    return bool(language == number("Language", NODE))


def send_again_soon(session: ClientSession) -> None:
    """Send the settings again, after the replies to the client's other calls."""
    asyncio.get_running_loop().call_later(_RESEND_S, send_again, session)
