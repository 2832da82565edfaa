"""Pulls the messages of one queue until the queue is dropped.

Source: `DefaultMQPushConsumerImpl.pullMessage`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyrocket.base.failures import Failures, attempt
from pyrocket.client.config import ConsumerConfig
from pyrocket.client.core.process_queue import Limits, ProcessQueue
from pyrocket.client.transport import ClientTransport
from pyrocket.values.consuming import GroupPosition, Pull, Pulled, PullStatus, Subscription
from pyrocket.values.message import StoredMessage

HOLD_MS = 15_000
"""How long a broker holds a pull that finds no message."""

_ERROR_S = 3

_log = logging.getLogger(__name__)


class ListenerCall:
    """Delivers the messages of queues to the listener."""

    def add(self, held: ProcessQueue) -> None:
        """Start to deliver the messages of a queue; needs nothing if all queues are alike."""

    def arrived(self, held: ProcessQueue) -> None:
        """Deliver the messages that were put into a queue."""
        raise NotImplementedError

    async def finished(self, held: ProcessQueue) -> None:
        """Return when no listener has messages of this queue, which was dropped; or at once if the
        results of running listeners do not count any longer.
        """

    async def stop(self, timeout_s: float) -> int:
        """Wait for running listeners; return the number of messages that they still have."""
        return 0


@dataclass(frozen=True)
class Pulling:
    """The pull loops of one consumer.

    Attributes:
        subscriptions: By topic; they may change while the consumer runs.
        limits: Returns the limits for a queue; those of a topic are shared by its queues.
        corrected: Called with a queue that was dropped because it does not have the offset that was
            pulled; its consumption continues at `next_offset`.
    """

    config: ConsumerConfig
    transport: ClientTransport
    subscriptions: Mapping[str, Subscription]
    failures: Failures
    consumption: ListenerCall
    limits: Callable[[ProcessQueue], Limits]
    corrected: Callable[[ProcessQueue], None]

    async def run(self, held: ProcessQueue) -> None:
        """Pull until the queue is dropped. Errors are logged, and the pull is repeated."""
        while not held.dropped:
            if held.is_full(self.limits(held)):
                await held.wait_for_change()
                continue
            what = f"a pull of {held.queue} failed and is repeated"
            if not await attempt(self.failures, what, self._pull(held)):
                await asyncio.sleep(_ERROR_S)
            elif self.config.pull_interval_ms:
                await asyncio.sleep(self.config.pull_interval_ms / 1000)

    async def _pull(self, held: ProcessQueue) -> None:
        request = Pull(
            held.queue,
            self.config.group,
            held.next_offset,
            self.subscriptions.get(held.queue.topic, Subscription()),
            self.config.pull_batch_size,
            HOLD_MS,
            held.epoch,
        )
        reply = await self.transport.pull(request)
        if not held.dropped:
            self._take(held, reply)

    def _take(self, held: ProcessQueue, reply: Pulled) -> None:
        if reply.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning(
                "%s has the offsets %d to %d, not %d: consumption continues at %d",
                *(held.queue, reply.available.minimum, reply.available.maximum),
                *(held.next_offset, reply.next_offset),
            )
            held.correct(GroupPosition(reply.next_offset, reply.epoch))
            self.corrected(held)
            return
        subscription = self.subscriptions.get(held.queue.topic, Subscription())
        wanted = [message for message in reply.messages if is_selected(message, subscription)]
        held.put(wanted, GroupPosition(reply.next_offset, reply.epoch))
        self.consumption.arrived(held)


def is_selected(message: StoredMessage, subscription: Subscription) -> bool:
    """Whether the message has one of the tags; brokers compare only the hashes of tags."""
    if subscription.kind != "TAG" or subscription.expression in ("", "*"):
        return True
    tags = {tag.strip() for tag in subscription.expression.split("||")}
    return message.tags in tags
