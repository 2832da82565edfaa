"""Orderly consumption: one listener at a time has messages of a queue, in order.

The queue is locked at its broker. Messages whose consumption failed are delivered again after a
pause, and until then the queue's later messages wait. Source: `ConsumeMessageOrderlyService`.
"""

import asyncio
from collections.abc import Sequence

from pyrocket.base.failures import attempt
from pyrocket.client.core.listening import Consuming, ListenerExitError, result_of
from pyrocket.client.core.process_queue import ProcessQueue
from pyrocket.values.message import StoredMessage

_DEAD_LETTER = -1
_UNLOCKED_S = 0.1


class OrderlyConsumption(Consuming):
    """Consumes each queue with one task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._listeners = asyncio.Semaphore(self.config.thread_max)
        self._tasks: dict[ProcessQueue, asyncio.Task[None]] = {}

    def add(self, held: ProcessQueue) -> None:
        """Start the task of a queue."""
        self._tasks[held] = asyncio.ensure_future(self._run(held))

    def arrived(self, held: ProcessQueue) -> None:
        """Do nothing: the queue has woken its task."""

    async def finished(self, held: ProcessQueue) -> None:
        if (task := self._tasks.pop(held, None)) is not None:
            await asyncio.wait([task])

    async def stop(self, timeout_s: float) -> int:
        """Drop all queues, and wait for running listeners; return the messages that they have."""
        tasks = {task: held for held, task in self._tasks.items()}
        for held in tasks.values():
            held.drop()
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        return sum(len(tasks[task]) for task in late)

    async def _run(self, held: ProcessQueue) -> None:
        try:
            while not held.dropped:
                if not held.has_waiting:
                    await held.wait_for_change()
                else:
                    await asyncio.sleep(await self._consume_next(held))
        except ListenerExitError as error:
            self._exit(error)

    async def _consume_next(self, held: ProcessQueue) -> float:
        """Deliver the next messages, and handle those that failed; return the pause after this."""
        async with self._listeners:
            # The lock may have been lost while all listeners were busy.
            if not self.is_own(held):
                return _UNLOCKED_S
            batch = held.take(self.config.consume_message_batch_max_size)
            call = self._consume(held, batch)
            await attempt(self.stats, f"messages of {held.queue} are repeated", call)
        failed = [message for message in batch if message in held]
        if failed and not held.dropped and await self._retry(held, failed):
            return self.config.suspend_ms / 1000
        return 0

    async def _consume(self, held: ProcessQueue, batch: Sequence[StoredMessage]) -> None:
        """Deliver messages; remove those that are consumed, and count a failed attempt of others.

        The listener has finished before the queue is unlocked, so its result still counts after the
        queue was lost.
        """
        given = [held.with_attempts(message) for message in batch]
        result = await result_of(self.listen, held.queue, given, self.stats)
        done = result.consumed(len(batch))
        self.stats.consumed += done
        held.remove(batch[:done])
        held.failed(batch[done:])

    async def _retry(self, held: ProcessQueue, failed: Sequence[StoredMessage]) -> bool:
        """Make messages the next ones again, except dead letters; return whether there are any."""
        most = self.config.max_reconsume_times
        for message in failed:
            times = held.with_attempts(message).reconsume_times
            if 0 <= most < times and await self._is_dead_letter(held, message):
                held.remove([message])
        left = [message for message in failed if message in held]
        held.put_back(left)
        return bool(left)

    async def _is_dead_letter(self, held: ProcessQueue, message: StoredMessage) -> bool:
        attempts = held.attempts[message.queue_offset]
        return await self._is_sent_back(held, message, _DEAD_LETTER, 0, attempts)
