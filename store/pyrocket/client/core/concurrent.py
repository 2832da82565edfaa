"""Concurrent consumption: messages of one queue are consumed in any order.

Messages whose consumption failed are sent back to the broker, which delivers them again from the
retry topic of the group. Source: `ConsumeMessageConcurrentlyService`.
"""

import asyncio
import logging
from collections.abc import Sequence

from pyrocket.base.arguments import counted
from pyrocket.base.failures import attempt
from pyrocket.client.core.listening import Consuming, ListenerExitError, result_of
from pyrocket.client.core.process_queue import ProcessQueue
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


class ConcurrentConsumption(Consuming):
    """Gives batches of messages to `thread_max` listeners at once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ready: asyncio.Queue[_Batch] = asyncio.Queue()
        self._running: dict[asyncio.Task[None], tuple[float, _Batch]] = {}
        self._stopped = False
        self._workers = [asyncio.ensure_future(self._work()) for _ in range(self.config.thread_max)]
        self._timeouts = asyncio.ensure_future(self._send_back_late())

    def arrived(self, held: ProcessQueue) -> None:
        while batch := held.take(self.config.consume_message_batch_max_size):
            self._ready.put_nowait((held, batch))

    async def stop(self, timeout_s: float) -> int:
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
                while not (held.dropped or self.is_own(held)):
                    await asyncio.sleep(_LAPSED_S)
                if not held.dropped:
                    self._running[worker] = asyncio.get_running_loop().time(), (held, batch)
                    await self._consume_or_repeat(held, batch)
                    del self._running[worker]
        except ListenerExitError as error:
            del self._running[worker]
            self._exit(error)

    async def _consume_or_repeat(self, held: ProcessQueue, batch: Sequence[StoredMessage]) -> None:
        what = f"messages of {held.queue} are consumed again"
        if not await attempt(self.stats, what, self._consume(held, batch)):
            left = [message for message in batch if message in held]
            asyncio.get_running_loop().call_later(_AGAIN_S, self._again, held, left)

    async def _consume(self, held: ProcessQueue, batch: Sequence[StoredMessage]) -> None:
        result = await result_of(self.listen, held.queue, batch, self.stats)
        if held.dropped:
            return
        done = result.consumed(len(batch))
        self.stats.consumed += done
        self._remove(held, batch[:done])
        for message in await self._send_back(held, batch[done:], result.delay_level):
            asyncio.get_running_loop().call_later(_AGAIN_S, self._again, held, [message])

    async def _send_back(
        self, held: ProcessQueue, messages: Sequence[StoredMessage], delay_level: int
    ) -> list[StoredMessage]:
        """Send messages back, and return those that could not be."""
        if messages and self.config.message_model is MessageModel.BROADCASTING:
            _log.warning(
                "not consumed again: %s of %s", counted(len(messages), "message"), held.queue
            )
            self._remove(held, messages)
            return []
        failed, attempts = [], self.config.max_reconsume_times
        # Messages that are not in process were sent back after the consume time-out.
        for message in [message for message in messages if message in held]:
            if await self._is_sent_back(held, message, delay_level, attempts):
                self._remove(held, [message])
            else:
                failed.append(message)
        return failed

    def _again(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        if messages and not held.dropped:
            self._ready.put_nowait((held, messages))

    def _remove(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        if not held.dropped:
            held.remove(messages)

    async def _send_back_late(self) -> None:
        """Send back the messages that a listener has had for longer than the consume time-out.

        The listener still has those that could not be sent back; the next round tries again. A
        broadcasting consumer sends nothing back, and its offset must not pass what is not consumed.
        """
        timeout_s = self.config.consume_timeout_min * 60
        while self.config.message_model is not MessageModel.BROADCASTING:
            await asyncio.sleep(timeout_s)
            oldest = asyncio.get_running_loop().time() - timeout_s
            for began_s, (held, batch) in [*self._running.values()]:
                if began_s <= oldest and not held.dropped:
                    call = self._send_back(held, batch, delay_level=_TIMEOUT_LEVEL)
                    await attempt(self.stats, "late messages are sent back later", call)
