"""Concurrent consumption: messages of one queue are consumed in any order.

Messages whose consumption failed are sent back to the broker, which delivers them again from the
retry topic of the group. Source: `ConsumeMessageConcurrentlyService`.
"""

import asyncio
import logging
from collections.abc import Sequence

from pyrocket.base.arguments import counted
from pyrocket.base.failures import attempt
from pyrocket.client.consumer_config import ConsumerConfig
from pyrocket.client.core.listening import IsOwn, Listen, ListenerExitError, Stats, result_of
from pyrocket.client.core.process_queue import ProcessQueue
from pyrocket.client.transport import ClientTransport
from pyrocket.values.consuming import MessageModel
from pyrocket.values.message import StoredMessage

_AGAIN_S = 5
"""Pause before messages are delivered again that could not be sent back."""

_LAPSED_S = 0.1
"""Interval of checks whether a queue is this member's, after a suspension."""

_TIMEOUT_LEVEL = 3
"""Delay level of messages that a listener had for too long."""

_log = logging.getLogger(__name__)
_Batch = tuple[ProcessQueue, Sequence[StoredMessage]]


class ConcurrentConsumption:
    """Gives batches of messages to `thread_max` listeners at once. Used by one event loop.

    Attributes:
        exited: Resolved with ListenerExitError if a listener ends the program.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        transport: ClientTransport,
        listen: Listen,
        stats: Stats,
        is_own: IsOwn,
    ) -> None:
        self._config, self._transport, self._is_own = config, transport, is_own
        self._listen, self._stats = listen, stats
        self._ready: asyncio.Queue[_Batch] = asyncio.Queue()
        self._running: dict[asyncio.Task[None], tuple[float, _Batch]] = {}
        self._stopped = False
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._workers = [asyncio.ensure_future(self._work()) for _ in range(config.thread_max)]
        self._timeouts = asyncio.ensure_future(self._send_back_late())

    def add(self, held: ProcessQueue) -> None:
        """Do nothing: batches of all queues are consumed alike."""

    def arrived(self, held: ProcessQueue) -> None:
        """Deliver the messages that were put into a queue."""
        while batch := held.take(self._config.consume_message_batch_max_size):
            self._ready.put_nowait((held, batch))

    async def finished(self, held: ProcessQueue) -> None:
        """Return at once: the results of running listeners no longer count."""

    async def stop(self, timeout_s: float) -> int:
        """Wait for running listeners; return the number of messages that they still have."""
        self._stopped = True
        self._timeouts.cancel()
        for worker in self._workers:
            if worker not in self._running:
                worker.cancel()
        if self._running:
            await asyncio.wait([*self._running], timeout=timeout_s)
        for worker in self._running:
            worker.cancel()
        return sum(len(batch) for _, (_, batch) in self._running.values())

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        try:
            while not self._stopped:
                held, batch = await self._ready.get()
                while not (held.dropped or self._is_own(held)):
                    await asyncio.sleep(_LAPSED_S)
                if not held.dropped:
                    self._running[worker] = asyncio.get_running_loop().time(), (held, batch)
                    await self._consume_or_repeat(held, batch)
                    del self._running[worker]
        except ListenerExitError as error:
            del self._running[worker]
            if not self.exited.done():
                self.exited.set_exception(error)

    async def _consume_or_repeat(self, held: ProcessQueue, batch: Sequence[StoredMessage]) -> None:
        what = f"messages of {held.queue} are consumed again"
        if not await attempt(self._stats, what, self._consume(held, batch)):
            left = [message for message in batch if message in held]
            asyncio.get_running_loop().call_later(_AGAIN_S, self._again, held, left)

    async def _consume(self, held: ProcessQueue, batch: Sequence[StoredMessage]) -> None:
        result = await result_of(self._listen, held.queue, batch, self._stats)
        if held.dropped:
            return
        done = result.consumed(len(batch))
        self._stats.consumed += done
        self._remove(held, batch[:done])
        for message in await self._send_back(held, batch[done:], result.delay_level):
            asyncio.get_running_loop().call_later(_AGAIN_S, self._again, held, [message])

    async def _send_back(
        self, held: ProcessQueue, messages: Sequence[StoredMessage], delay_level: int
    ) -> list[StoredMessage]:
        """Send messages back, and return those that could not be."""
        if messages and self._config.message_model is MessageModel.BROADCASTING:
            _log.warning(
                "not consumed again: %s of %s", counted(len(messages), "message"), held.queue
            )
            self._remove(held, messages)
            return []
        failed = []
        # Messages that are not in process were sent back after the consume time-out.
        for message in [one for one in messages if one in held]:
            if await self._is_sent_back(held, message, delay_level):
                self._remove(held, [message])
            else:
                failed.append(message)
        return failed

    async def _is_sent_back(
        self, held: ProcessQueue, message: StoredMessage, delay_level: int
    ) -> bool:
        config = self._config
        call = self._transport.send_back(
            config.group,
            held.queue,
            message.queue_offset,
            delay_level,
            config.max_reconsume_times,
        )
        what = f"a message of {held.queue} is consumed again"
        sent_back = await attempt(self._stats, what, call)
        self._stats.sent_back += sent_back
        return sent_back

    def _again(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        if messages and not held.dropped:
            self._ready.put_nowait((held, messages))

    def _remove(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        if not held.dropped:
            held.remove(messages)

    async def _send_back_late(self) -> None:
        """Send back the messages that a listener has had for longer than the consume time-out.

        The listener still has those that could not be sent back; the next round tries again.
        """
        timeout_s = self._config.consume_timeout_min * 60
        while True:
            await asyncio.sleep(timeout_s)
            oldest = asyncio.get_running_loop().time() - timeout_s
            for began_s, (held, batch) in [*self._running.values()]:
                if began_s <= oldest and not held.dropped:
                    call = self._send_back(held, batch, delay_level=_TIMEOUT_LEVEL)
                    await attempt(self._stats, "late messages are sent back later", call)
