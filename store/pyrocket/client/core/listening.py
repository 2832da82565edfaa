"""What consumers do with the messages that they have pulled: the interface, and shared parts."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from pyrocket.base.arguments import counted
from pyrocket.base.failures import Failures, attempt
from pyrocket.client.config import ConsumerConfig
from pyrocket.client.core.process_queue import ProcessQueue
from pyrocket.client.core.pulling import ListenerCall
from pyrocket.client.results import ConsumeResult
from pyrocket.client.transport import ClientTransport
from pyrocket.formats.properties import RETRY_TOPIC
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.values.message import MessageQueue, StoredMessage

_log = logging.getLogger(__name__)

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


@dataclass(eq=False)
class Consuming(ListenerCall):
    """What concurrent and orderly consumption share. Used by one event loop.

    Attributes:
        is_own: Whether the consumer knows that it holds a queue; see `GroupMember.is_own`.
        exited: Resolved with ListenerExitError if a listener ends the program.
    """

    config: ConsumerConfig
    transport: ClientTransport
    listen: Listen
    stats: Stats
    is_own: Callable[[ProcessQueue], bool]

    def __post_init__(self) -> None:
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _exit(self, error: ListenerExitError) -> None:
        if not self.exited.done():
            self.exited.set_exception(error)

    async def _is_sent_back(
        self,
        held: ProcessQueue,
        message: StoredMessage,
        delay_level: int,
        max_reconsume_times: int,
        failed_attempts: int = 1,
    ) -> bool:
        """Send a message back, and return whether that succeeded; see `ClientTransport`."""
        call = self.transport.send_back(
            self.config.group,
            held.queue,
            message.queue_offset,
            delay_level,
            max_reconsume_times,
            failed_attempts,
        )
        is_sent_back = await attempt(
            self.stats, f"a message of {held.queue} is consumed again", call
        )
        self.stats.sent_back += is_sent_back
        return is_sent_back


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
    is_retry, original = message.topic.startswith(RETRY_PREFIX), message.properties.get(RETRY_TOPIC)
    return replace(message, topic=original) if is_retry and original else message
