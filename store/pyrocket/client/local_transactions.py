"""Executes the local transactions of a producer, and answers checks with its listener."""

import asyncio
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyrocket.client.config import ProducerConfig
from pyrocket.client.core.sending import Sending
from pyrocket.client.core.transactions import TransactionCore, decision
from pyrocket.client.instance import Instance
from pyrocket.client.tracing import Tracer
from pyrocket.errors import InvalidInputError, StoreUnavailableError
from pyrocket.values.message import OutgoingMessage, SendStatus, StoredMessage
from pyrocket.values.transactions import (
    LocalTransactionState,
    TransactionListener,
    TransactionSendResult,
    Undecided,
)

_log = logging.getLogger(__name__)


class LocalTransactions:
    """The transactions of one producer. `send` may be called by any thread."""

    def __init__(
        self,
        config: ProducerConfig,
        listener: TransactionListener,
        instance: Instance,
        sending: Sending,
        tracer: Tracer | None,
    ) -> None:
        self._listener, self._instance, self._sending = listener, instance, sending
        self._thread = ThreadPoolExecutor(1, f"transaction checks of {config.group}")
        traced = {} if tracer is None else {"ended": tracer.ended}
        self._core = TransactionCore(
            config.group, instance.transport, self._check, timeout_ms=config.timeout_ms, **traced
        )

    async def start(self) -> None:
        """Accept checks; called in the event loop."""
        await self._core.start()

    async def stop(self) -> None:
        """Accept no more checks; called in the event loop."""
        await self._core.stop()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def send_half(self, message: OutgoingMessage, immunity_s: int | None) -> Undecided:
        """Store a half message, which is not checked before `decide`."""
        return self._instance.run(self._send_half(message, immunity_s))

    async def _send_half(self, message: OutgoingMessage, immunity_s: int | None) -> Undecided:
        # Before the message is stored: a check may arrive before the reply.
        self._core.executing(message.unique_id)
        try:
            return await self._sending.send_half(message, immunity_s=immunity_s)
        except BaseException:
            self._core.unsent(message.unique_id)
            raise

    def decide(self, undecided: Undecided, argument: Any) -> TransactionSendResult:
        """Execute the local transaction in this thread, and commit or roll back."""
        state = LocalTransactionState.UNKNOWN
        try:
            state = self._execute(undecided, argument)
        finally:  # Also if the program ends.
            error = self._end(undecided, state)
        return TransactionSendResult(
            topic=undecided.message.topic,
            queue_id=undecided.message.queue_id,
            transaction_id=undecided.half.transaction_id,
            queue_offset=undecided.half.queue_offset,
            physical_offset=undecided.half.physical_offset,
            status=undecided.status,
            state=state,
            error=error,
        )

    def _execute(self, undecided: Undecided, argument: Any) -> LocalTransactionState:
        if undecided.status is not SendStatus.SEND_OK:
            return LocalTransactionState.ROLLBACK
        try:
            return decision(self._listener.execute(undecided.message, argument))
        except Exception:  # The application's code may raise anything.
            _log.exception("the listener failed for transaction %s", undecided.half)
            return LocalTransactionState.UNKNOWN

    def _end(self, undecided: Undecided, state: LocalTransactionState) -> Exception | None:
        try:
            return self._instance.run(self._core.end(undecided, state))
        except StoreUnavailableError as error:  # The producer was closed in the meantime.
            return error

    async def _check(self, message: StoredMessage) -> object:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._listener.check, message)


def check_listener(listener: object) -> None:
    """Raise InvalidInputError (TRANSACTION_LISTENER) unless it has the methods of a listener."""
    for name in ("execute", "check"):
        if not callable(getattr(listener, name, None)):
            raise InvalidInputError(
                f"the listener {listener!r} has no method {name!r}.",
                remedy="Give an object with `execute` and `check`: a TransactionListener.",
                code="TRANSACTION_LISTENER",
            )
        if inspect.iscoroutinefunction(getattr(listener, name)):
            raise InvalidInputError(
                f"`{name}` of {listener!r} is an `async def` function, which is not awaited.",
                remedy="Use a function that returns the state of the transaction.",
                code="LISTENER_ASYNC",
            )
