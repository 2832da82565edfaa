"""Orderly consumption: one listener at a time has messages of a queue, in order.

The queue is locked at its broker. Messages whose consumption failed are delivered again after a
pause, and until then the queue's later messages wait. Source: `ConsumeMessageOrderlyService`.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from pyrocket.client.consumer_config import ConsumerConfig
from pyrocket.client.core.listening import Listen, ListenerExitError, Stats, attempt, result_of
from pyrocket.client.core.offsets import Offsets
from pyrocket.client.core.process_queue import ProcessQueue
from pyrocket.client.transport import ClientTransport
from pyrocket.message import StoredMessage

LOCK_S = 30
"""A lock counts as lost if it was not renewed for so long; the broker keeps it twice as long."""

_DEAD_LETTER = -1
_UNLOCKED_S = 0.1

_log = logging.getLogger(__name__)


class OrderlyConsumption:
    """Consumes each queue with one task. Used by one event loop.

    Attributes:
        exited: Resolved with ListenerExitError if a listener ends the program.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        transport: ClientTransport,
        offsets: Offsets,
        listen: Listen,
        stats: Stats,
    ) -> None:
        self._config, self._transport = config, transport
        self._offsets, self._listen, self._stats = offsets, listen, stats
        self._listeners = asyncio.Semaphore(config.thread_max)
        self._tasks: dict[ProcessQueue, asyncio.Task[None]] = {}
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self, held: ProcessQueue) -> None:
        """Start the task of a queue."""
        self._tasks[held] = asyncio.ensure_future(self._run(held))

    def arrived(self, held: ProcessQueue) -> None:
        """Do nothing: the queue has woken its task."""

    async def finished(self, held: ProcessQueue) -> None:
        """Return when no listener has messages of this queue, which was dropped."""
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
        attempts = 0
        try:
            while not held.dropped:
                if not held.has_waiting:
                    await held.wait_for_change()
                    continue
                async with self._listeners:
                    # The lock may have been lost while all listeners were busy.
                    batch = self._take(held)
                    done = await self._consume(held, batch, attempts) if batch else 0
                if not batch:
                    await asyncio.sleep(_UNLOCKED_S)
                    continue
                attempts = 0 if done else attempts + 1
                if done < len(batch) and not held.dropped:
                    await self._retry(held, batch[done:], attempts)
        except ListenerExitError as error:
            if not self.exited.done():
                self.exited.set_exception(error)

    def _take(self, held: ProcessQueue) -> Sequence[StoredMessage]:
        """Return the next messages; none if the queue's lock is lost or the queue was dropped."""
        is_locked = asyncio.get_running_loop().time() - held.locked_s < LOCK_S
        return held.take(self._config.consume_message_batch_max_size) if is_locked else []

    async def _consume(
        self, held: ProcessQueue, batch: Sequence[StoredMessage], attempts: int
    ) -> int:
        """Deliver messages; return how many of the first ones are consumed."""
        given = [replace(one, reconsume_times=one.reconsume_times + attempts) for one in batch]
        result = await result_of(
            self._listen, held.queue, given if attempts else batch, self._stats
        )
        # The listener has finished before the queue is unlocked, so its result still counts.
        done = result.consumed(len(batch))
        self._stats.consumed += done
        held.remove(batch[:done])
        self._offsets.reach(held.queue, held.commit_offset)
        return done

    async def _retry(
        self, held: ProcessQueue, failed: Sequence[StoredMessage], attempts: int
    ) -> None:
        """Make messages the next ones again after a pause, or dead letters after all attempts."""
        config, first = self._config, failed[0]
        is_last = 0 <= config.max_reconsume_times <= first.reconsume_times + attempts - 1
        if is_last and await self._is_dead_letter(held, first):
            held.remove([first])
            self._offsets.reach(held.queue, held.commit_offset)
            held.put_back(failed[1:])
            return
        held.put_back(failed)
        await asyncio.sleep(config.suspend_ms / 1000)

    async def _is_dead_letter(self, held: ProcessQueue, message: StoredMessage) -> bool:
        call = self._transport.send_back(
            self._config.group, held.queue, message.queue_offset, _DEAD_LETTER, 0
        )
        sent_back = await attempt(f"a message of {held.queue} is consumed again", call)
        self._stats.sent_back += sent_back
        return sent_back
