"""What consumers do with the messages that they have pulled: the interface, and shared parts."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyrocket.base.arguments import counted
from pyrocket.base.failures import Failures
from pyrocket.client.core.process_queue import ProcessQueue
from pyrocket.client.results import ConsumeResult
from pyrocket.formats.properties import RETRY_TOPIC
from pyrocket.values.message import MessageQueue, StoredMessage

_log = logging.getLogger(__name__)

IsOwn = Callable[[ProcessQueue], bool]
"""Whether a consumer knows that it holds a queue; see `GroupMember.is_own`."""

Listen = Callable[[MessageQueue, Sequence[StoredMessage]], Awaitable[object]]
"""Calls the listener with messages of a queue, and returns what it returned."""


class ListenerExitError(BaseException):
    """The listener ended the program: it raised SystemExit, KeyboardInterrupt or the like.

    It is no Exception, because nothing that survives errors may survive it.
    """


@dataclass
class Stats(Failures):
    """Counts of one consumer since its start; see also `Failures`.

    Attributes:
        consumed: Messages consumed successfully.
        sent_back: Messages copied to the retry topic or the dead-letter topic.
        repeated: Messages whose delivery to a listener was not the first one, as far as known.
        rebalances: Rebalances that changed the queues of this consumer.
        without_queues_s: Time in which this consumer held no queue, in seconds, up to its last
            rebalance: the other members held them all, or queues were changing hands.
        listener_errors: Exceptions and invalid results of the listener.
        listener_cpu_s: CPU time of the listener, in seconds; see `advise`.
        listener_wall_s: Time that its calls took, in seconds: CPU time and waits.
    """

    consumed: int = 0
    sent_back: int = 0
    repeated: int = 0
    rebalances: int = 0
    without_queues_s: float = 0.0
    listener_errors: int = 0
    listener_cpu_s: float = 0.0
    listener_wall_s: float = 0.0


class ListenerCall(Protocol):
    """Delivers the messages of queues to the listener."""

    def add(self, held: ProcessQueue) -> None:
        """Start to deliver the messages of a queue."""
        ...

    def arrived(self, held: ProcessQueue) -> None:
        """Deliver the messages that were put into a queue."""
        ...

    async def finished(self, held: ProcessQueue) -> None:
        """Return when no listener has messages of this queue, which was dropped."""
        ...

    async def stop(self, timeout_s: float) -> int:
        """Wait for running listeners; return the number of messages that they still have."""
        ...


async def result_of(
    listen: Listen, queue: MessageQueue, messages: Sequence[StoredMessage], stats: Stats
) -> ConsumeResult:
    """Call the listener, and return its result: RECONSUME_LATER after an error or an invalid
    result.

    Raises ListenerExitError.
    """
    stats.repeated += sum(message.reconsume_times > 0 for message in messages)
    try:
        result = await listen(queue, [with_original_topic(message) for message in messages])
    except Exception as error:
        stats.listener_errors += 1
        is_first = stats.is_first(type(error).__name__)  # Later ones are logged in one line.
        _log.warning(
            "the listener failed for %s of %s: %r",
            counted(len(messages), "message"),
            queue,
            error,
            exc_info=error if is_first else None,
        )
        return ConsumeResult.RECONSUME_LATER
    if isinstance(result, ConsumeResult):
        return result
    stats.listener_errors += 1
    kind = type(result).__name__
    if stats.is_first(f"returned {kind}"):
        _log.warning(
            "the listener returned %s, not a ConsumeResult: its messages are consumed later", kind
        )
    return ConsumeResult.RECONSUME_LATER


def with_original_topic(message: StoredMessage) -> StoredMessage:
    """Return a message of a retry topic with the topic that it was sent to, as in RocketMQ."""
    original = message.properties.get(RETRY_TOPIC)
    return replace(message, topic=original) if original else message
