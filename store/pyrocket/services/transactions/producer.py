"""`TransactionProducer` sends messages that become visible when a local transaction succeeds.

A process with an open producer is asked about undecided messages of its group, including messages
that other processes sent.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from pyrocket.errors import StoreReadOnlyError, TransactionError
from pyrocket.formats.half_message import HalfMessage
from pyrocket.message import Message, SendStatus
from pyrocket.metadata.groups import check_group_name
from pyrocket.rounds import Rounds
from pyrocket.services.transactions.model import (
    CheckRequest,
    HalfMessageRef,
    LocalTransactionState,
    TransactionListener,
    TransactionSendResult,
)

if TYPE_CHECKING:
    from pyrocket.services.transactions.transactions import Transactions

MAX_REQUESTS = 2000
"""Maximum number of checks that wait for the listener, as in RocketMQ's client."""

_POLL_SECONDS = 0.05
_log = logging.getLogger(__name__)


class HasTransactions(Protocol):
    """A store."""

    @property
    def transactions(self) -> "Transactions":
        """Its transactions."""
        ...


class TransactionProducer:
    """A transactional producer of one group. Thread-safe; do not use it across a fork.

    The listener executes local transactions in the thread that sends, and answers checks in a
    thread of the producer, one at a time. Close the producer, or use it in a `with` block::

        with TransactionProducer(store, "orders", listener) as producer:
            producer.send(Message(topic="order", body=b"1"))
    """

    def __init__(
        self,
        store: HasTransactions,
        group: str,
        listener: TransactionListener,
        *,
        background: bool = True,
    ) -> None:
        """Start a producer on a store that is open for writing.

        background: answer checks in a thread; otherwise only `check_now` answers them.

        Raises GroupNameError, StoreReadOnlyError.
        """
        check_group_name(group)
        self._transactions, self.group, self._listener = store.transactions, group, listener
        self._requests: queue.Queue[CheckRequest] = queue.Queue(MAX_REQUESTS)
        self._asked: set[str] = set()
        self._closed, self._store_is_closed = threading.Event(), False
        self._transactions.add(self)
        self._thread: threading.Thread | None = None
        if background:
            self._thread = threading.Thread(
                target=self._serve, name=f"transaction checks of {group}", daemon=True
            )
            self._thread.start()

    def send(
        self, message: Message, arg: Any = None, *, immunity_s: int | None = None
    ) -> TransactionSendResult:
        """Store a half message, execute its local transaction, and commit or roll back.

        arg: passed to the listener.
        immunity_s: number of seconds in which the listener is not asked about the message. After
            that time, only the answer to a check can decide the transaction.

        Raises the errors of `Store.append`, and MessageError (TRANSACTION_DELAYED) for a message
        with a delay. In these cases the local transaction was not executed.
        """
        self._check_open()
        request, status = self._transactions.send_half(self.group, message, immunity_s)
        with self._mark_asked(request):
            state = LocalTransactionState.ROLLBACK
            if status is SendStatus.SEND_OK:
                state = self._call_listener(
                    lambda: self._listener.execute(request.message, arg), request
                )
            error = self._end(request, state, from_check=False)
        return TransactionSendResult(
            topic=request.message.topic,
            queue_id=request.message.queue_id,
            transaction_id=request.half.transaction_id,
            queue_offset=request.half.queue_offset,
            physical_offset=request.half.physical_offset,
            status=status,
            state=state,
            error=error,
        )

    def check_now(self) -> int:
        """Run a round of checks if one is due, and answer all requests in this thread.

        Returns the number of requests answered.
        """
        self._transactions.run_checks()
        answered = 0
        while not self._closed.is_set() and self._answer_next(wait=False):
            answered += 1
        return answered

    def close(self) -> None:
        """Stop the producer. A later round sends its unanswered requests to any producer."""
        self._transactions.remove(self)
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> "TransactionProducer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def room(self) -> int:
        """Return the number of further requests that the producer accepts."""
        return MAX_REQUESTS - self._requests.qsize()

    def is_asked(self, half: HalfMessage) -> bool:
        """Return whether this message is being executed or has an unanswered request."""
        return _key(half) in self._asked

    def ask(self, request: CheckRequest) -> bool:
        """Queue a request for the listener; return False if the queue is full."""
        self._asked.add(_key(request.half))
        try:
            self._requests.put_nowait(request)
        except queue.Full:
            self._asked.discard(_key(request.half))
            return False
        return True

    def _serve(self) -> None:
        rounds = Rounds()
        while not (self._closed.is_set() or self._store_is_closed):
            rounds.run("checking transactions failed and will be retried", self._check)
            self._answer_next(wait=True)

    def _check(self) -> None:
        try:
            self._transactions.run_checks()
        except StoreReadOnlyError:
            self._store_is_closed = True

    def _answer_next(self, *, wait: bool) -> bool:
        try:
            request = self._requests.get(wait, _POLL_SECONDS)
        except queue.Empty:
            return False
        with self._mark_asked(request):
            state = self._call_listener(lambda: self._listener.check(request.message), request)
            self._end(request, state, from_check=True)
        return True

    @contextmanager
    def _mark_asked(self, request: CheckRequest) -> Iterator[None]:
        """Keep the check service from asking about this message inside the `with` block."""
        self._asked.add(_key(request.half))
        try:
            yield
        finally:
            self._asked.discard(_key(request.half))

    def _call_listener(
        self, call: Callable[[], LocalTransactionState | None], request: CheckRequest
    ) -> LocalTransactionState:
        try:
            state = call()
        except Exception:  # The application's code may raise anything.
            _log.exception("the listener failed for transaction %s", request.half)
            return LocalTransactionState.UNKNOWN
        return state if isinstance(state, LocalTransactionState) else LocalTransactionState.UNKNOWN

    def _end(
        self, request: CheckRequest, state: LocalTransactionState, *, from_check: bool
    ) -> Exception | None:
        """Store a decision. If that fails, return the error: the message stays undecided."""
        try:
            self._transactions.end(
                request.half, state, from_check=from_check, record=request.record
            )
        except Exception as error:
            late = from_check and getattr(error, "code", "") == "TRANSACTION_ENDED"
            level = logging.DEBUG if late else logging.WARNING
            _log.log(level, "%s of %s could not be stored: %s", state.name, request.half, error)
            return error
        return None

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise TransactionError(
                f"the producer of group {self.group!r} is closed.",
                remedy="Create another one.",
                code="PRODUCER_CLOSED",
            )


def _key(half: HalfMessage | HalfMessageRef) -> str:
    return half.transaction_id or f"@{half.queue_offset}"
