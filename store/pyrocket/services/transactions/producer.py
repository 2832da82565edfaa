"""`TransactionProducer`: sends messages that become visible if a local transaction succeeds.

A process that holds one is asked about its group's messages that stay undecided, whoever sent them.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from pyrocket.errors import PyrocketError, StoreReadOnlyError, TransactionError
from pyrocket.formats.half_message import HalfMessage
from pyrocket.message import Message, SendStatus
from pyrocket.metadata.subscriptions import check_group_name
from pyrocket.services.transactions.model import (
    CheckRequest,
    HalfMessageRef,
    LocalTransactionState,
    TransactionListener,
    TransactionSendResult,
)

if TYPE_CHECKING:
    from pyrocket.services.transactions.transactions import Transactions

MAX_QUESTIONS = 2000
"""That wait for the listener, as in RocketMQ's client."""

_POLL_SECONDS = 0.05
_ROLLBACK = LocalTransactionState.ROLLBACK
_log = logging.getLogger(__name__)


class HasTransactions(Protocol):
    """A store."""

    @property
    def transactions(self) -> "Transactions":
        """Its transactions."""
        ...


class TransactionProducer:
    """A transactional producer of one group. Safe to share between threads, not across a fork.

    Its listener executes local transactions in the thread that sends, and answers questions in a
    thread of its own, one at a time. Use it in a `with` block, or close it.
    """

    def __init__(
        self,
        store: HasTransactions,
        group: str,
        listener: TransactionListener,
        *,
        background: bool = True,
    ) -> None:
        """Make one of a store that is open for writing.

        Without `background` nobody is asked by itself: `check_now` does that. Raises
        GroupNameError, StoreReadOnlyError.
        """
        check_group_name(group)
        self._transactions, self.group, self._listener = store.transactions, group, listener
        self._questions: queue.Queue[CheckRequest] = queue.Queue(MAX_QUESTIONS)
        self._asked: set[str] = set()
        self._closed = threading.Event()
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
        """Store a message, execute its local transaction with `arg`, and do what that says.

        For `immunity_s` seconds nobody is asked about it, and after that its decision is only taken
        as an answer. Raises what a send does, and MessageError (TRANSACTION_DELAYED) for a message
        with a delay; then nothing was executed.
        """
        self._check_open()
        question, status = self._transactions.send_half(self.group, message, immunity_s)
        with self._occupied(question):
            state = _ROLLBACK
            if status is SendStatus.SEND_OK:
                state = self._ask_listener(
                    lambda: self._listener.execute(question.message, arg), question
                )
            error = self._end(question, state, from_check=False)
        return TransactionSendResult(
            topic=question.message.topic,
            queue_id=question.message.queue_id,
            transaction_id=question.place.transaction_id,
            queue_offset=question.place.queue_offset,
            physical_offset=question.place.physical_offset,
            status=status,
            state=state,
            error=error,
        )

    def check_now(self) -> int:
        """Make a round of checks if it is time, and answer what was asked, in this thread.

        Returns how many questions were answered.
        """
        self._transactions.run_checks()
        answered = 0
        while not self._closed.is_set() and self._answer_next(wait=False):
            answered += 1
        return answered

    def close(self) -> None:
        """Stop; questions that wait are left to whoever is asked next time."""
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
        """Return how many more questions may wait."""
        return MAX_QUESTIONS - self._questions.qsize()

    def is_asked(self, half: HalfMessage) -> bool:
        """Whether the listener executes this message, or a question about it is under way."""
        return _key(half) in self._asked

    def ask(self, question: CheckRequest) -> None:
        """Have a question answered."""
        self._asked.add(_key(question.place))
        try:
            self._questions.put_nowait(question)
        except queue.Full:
            self._asked.discard(_key(question.place))
            _log.warning("%s is asked later: too many questions wait", question.place)

    def _serve(self) -> None:
        told = ""
        while not self._closed.is_set():
            try:
                self._transactions.run_checks()
            except StoreReadOnlyError:
                return  # The store was closed.
            except (PyrocketError, OSError) as error:
                if str(error) != told:
                    told = str(error)
                    _log.warning("transactions are checked later: %s", error)
            self._answer_next(wait=True)

    def _answer_next(self, *, wait: bool) -> bool:
        try:
            question = self._questions.get(wait, _POLL_SECONDS)
        except queue.Empty:
            return False
        with self._occupied(question):
            state = self._ask_listener(lambda: self._listener.check(question.message), question)
            self._end(question, state, from_check=True)
        return True

    @contextmanager
    def _occupied(self, question: CheckRequest) -> Iterator[None]:
        """Have nobody asked about a message meanwhile."""
        self._asked.add(_key(question.place))
        try:
            yield
        finally:
            self._asked.discard(_key(question.place))

    def _ask_listener(
        self, ask: Callable[[], LocalTransactionState | None], question: CheckRequest
    ) -> LocalTransactionState:
        try:
            state = ask()
        except Exception:  # It is the user's code: whatever it raises, nothing is known.
            _log.exception("the listener failed about transaction %s", question.place)
            return LocalTransactionState.UNKNOWN
        return state if isinstance(state, LocalTransactionState) else LocalTransactionState.UNKNOWN

    def _end(
        self, question: CheckRequest, state: LocalTransactionState, *, from_check: bool
    ) -> Exception | None:
        """Write a decision; return why that failed: then the message stays undecided."""
        try:
            self._transactions.answer(question, state, from_check=from_check)
        except Exception as error:
            late = from_check and getattr(error, "code", "") == "TRANSACTION_ENDED"
            level = logging.DEBUG if late else logging.WARNING
            _log.log(level, "%s of %s was not written: %s", state.name, question.place, error)
            return error
        return None

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise TransactionError(
                f"the producer of group {self.group!r} is closed.",
                remedy="Make another one.",
                code="PRODUCER_CLOSED",
            )


def _key(half: HalfMessage | HalfMessageRef) -> str:
    return half.transaction_id or f"@{half.queue_offset}"
