"""The core of a transactional producer: ends transactions, and answers checks one at a time.

Source: `TransactionMQProducer`, `DefaultMQProducerImpl.endTransaction`, `checkTransactionState`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pyrocket.client.transport import ClientTransport
from pyrocket.values.message import StoredMessage
from pyrocket.values.transactions import LocalTransactionState, Undecided

MAX_CHECKS = 2000
"""Maximum number of checks that wait for the listener, as in RocketMQ's client."""

CheckMessage = Callable[[StoredMessage], Awaitable[object]]
"""Calls the listener's `check`, and returns what it returned."""

Ended = Callable[[Undecided, LocalTransactionState, bool], None]
"""Called with each decision, and whether it answers a check."""

_log = logging.getLogger(__name__)


class TransactionCore:
    """The transactions of one producer group. Used by one event loop."""

    def __init__(
        self,
        group: str,
        transport: ClientTransport,
        check: CheckMessage,
        *,
        timeout_ms: int,
        ended: Ended = lambda undecided, state, from_check: None,
    ) -> None:
        self._group, self._transport, self._check = group, transport, check
        self._timeout_s, self._ended = timeout_ms / 1000, ended
        self._waiting: asyncio.Queue[Undecided] = asyncio.Queue(MAX_CHECKS)
        self._busy: set[str] = set()
        self._stop_watching: Callable[[], None] = lambda: None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept checks of the group."""
        self._stop_watching = self._transport.watch_checks(self._group, self.ask)
        self._serving = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        """Accept no more checks; brokers ask another producer about those that wait."""
        self._stop_watching()
        serving = self._serving
        while serving is not None and not serving.done():
            # Before Python 3.12, `asyncio.wait_for` may ignore a cancellation.
            serving.cancel()
            await asyncio.wait([serving], timeout=1)

    def executing(self, transaction_id: str) -> None:
        """Ignore checks of a message until `end`: its local transaction is being executed.

        transaction_id: The unique id of the message, which is sent after this call.
        """
        self._busy.add(transaction_id)

    def unsent(self, transaction_id: str) -> None:
        """Answer checks of a message whose send has failed, although it may be stored."""
        self._busy.discard(transaction_id)

    def ask(self, undecided: Undecided) -> None:
        """Add a check. Without room it is ignored: the broker asks again."""
        if undecided.half.transaction_id in self._busy:
            return
        try:
            self._waiting.put_nowait(undecided)
        except asyncio.QueueFull:
            _log.warning("too many checks are pending: %s is checked later", undecided.half)
        else:
            self._busy.add(undecided.half.transaction_id)

    async def end(
        self, undecided: Undecided, state: LocalTransactionState, *, from_check: bool = False
    ) -> Exception | None:
        """Commit or roll back; log and return an error: the broker will ask about the message."""
        self._ended(undecided, state, from_check)
        try:
            if state is not LocalTransactionState.UNKNOWN:
                call = self._transport.end_transaction(undecided, state)
                await asyncio.wait_for(call, self._timeout_s)
        except Exception as error:
            late = from_check and getattr(error, "code", "") == "TRANSACTION_ENDED"
            level = logging.DEBUG if late else logging.WARNING
            what = error if str(error) else "there was no answer in time"
            _log.log(level, "%s of %s could not be stored: %s", state.name, undecided.half, what)
            return error
        finally:
            self._busy.discard(undecided.half.transaction_id)
        return None

    async def _serve(self) -> None:
        while True:
            undecided = await self._waiting.get()
            state = await self._state_of(undecided)
            await self.end(undecided, state, from_check=True)

    async def _state_of(self, undecided: Undecided) -> LocalTransactionState:
        try:
            return decision(await self._check(undecided.message))
        except Exception:  # The application's code may raise anything.
            _log.exception("the listener failed for transaction %s", undecided.half)
            return LocalTransactionState.UNKNOWN


def decision(result: object) -> LocalTransactionState:
    """Return the result of a listener; UNKNOWN if it is None or of another type."""
    return result if isinstance(result, LocalTransactionState) else LocalTransactionState.UNKNOWN
