"""Holds acknowledgements back until a replica has the messages: the setting `sync`.

What was appended stays in the log of the primary, whatever the outcome. Source: `HAService` and
`GroupTransferService`.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from pyrocket.base.rounds import Rounds
from pyrocket.broker.sends import converted
from pyrocket.errors import BrokerBusyError
from pyrocket.values.message import SendStatus

_Value = TypeVar("_Value")
_OK, _TIMEOUT = SendStatus.SEND_OK, SendStatus.FLUSH_SLAVE_TIMEOUT


class Confirmations:
    """Waits until a replica has what was appended. Safe to share between threads."""

    def __init__(
        self, published: Callable[[], int], is_available: Callable[[], bool], timeout_s: float
    ) -> None:
        """Wait up to `timeout_s` for a replica; with 0, everything is confirmed at once.

        `published` returns the end of the log, `is_available` whether a replica may be waited for.
        """
        self._published, self._is_available = published, is_available
        self._timeout_s, self._replicated = timeout_s, 0
        self._waiting: dict[Future[SendStatus], tuple[int, float]] = {}
        self._changed = threading.Condition()
        self.rounds, self._closed = Rounds(), False
        self._thread = threading.Thread(target=self._run, name="pyrocket-confirm", daemon=True)
        if timeout_s:
            self._thread.start()

    @property
    def is_running(self) -> bool:
        return not self._timeout_s or self._thread.is_alive()

    @property
    def is_waiting(self) -> bool:
        """Whether an acknowledgement is held back."""
        return bool(self._waiting)

    @property
    def state(self) -> str:
        """The status of a send if all goes well; empty if sends do not wait for replicas."""
        if not self._timeout_s:
            return ""
        return (_OK if self._is_available() else SendStatus.SLAVE_NOT_AVAILABLE).value

    def status(self) -> "Future[SendStatus]":
        """Return the future status of all that was appended before the call."""
        status, state = Future[SendStatus](), SendStatus(self.state or _OK)
        if not self._timeout_s or state is not _OK:
            status.set_result(state)
            return status
        with self._changed:
            if self._closed:
                status.set_result(_TIMEOUT)
            else:
                self._waiting[status] = self._published(), time.monotonic() + self._timeout_s
                self._changed.notify()
        return status

    def holding(self, answer: "Callable[..., _Value]") -> "Callable[..., Future[_Value]]":
        """Return a function whose result is that of `answer`, when a replica has what it appended.

        Without a replica that has it, the result gets the status of a send; for a result without a
        status, the future raises BrokerBusyError (FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE).
        """

        @wraps(answer)
        def held(*given: Any, **named: Any) -> "Future[_Value]":
            result = answer(*given, **named)
            return converted(self.status(), lambda done: _with_status(result, done.result()))

        return held

    def acknowledged(self, end: int) -> None:
        """Confirm what a replica has, whose log is durable up to `end`."""
        with self._changed:
            self._replicated = max(self._replicated, end)
            self._changed.notify()

    def close(self) -> None:
        """Stop the thread; what is still held back was not confirmed."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._timeout_s:
            self._thread.join()

    def _run(self) -> None:
        while due := self._next():
            for status, end in due.items():
                status.set_result(_OK if end <= self._replicated else _TIMEOUT)

    def _next(self) -> "dict[Future[SendStatus], int]":
        """Wait until acknowledgements are due, and return them; none after `close`."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = {
                    status: end
                    for status, (end, until) in self._waiting.items()
                    if end <= self._replicated or until <= now or self._closed
                }
                if due or self._closed:
                    break
                first = next((until for _, until in self._waiting.values()), None)
                self._changed.wait(None if first is None else first - now)
            for status in due:
                del self._waiting[status]
            return due


def _with_status(result: _Value, status: SendStatus) -> _Value:
    if status is _OK:
        return result
    if hasattr(result, "status"):
        return cast(_Value, replace(cast(Any, result), status=status))
    raise BrokerBusyError(
        "the change is stored, but no replica has confirmed it in time.",
        remedy="Repeating it changes nothing. `pyrocket broker status` shows the replicas.",
        code="FLUSH_SLAVE_TIMEOUT" if status is _TIMEOUT else "SLAVE_NOT_AVAILABLE",
    )
