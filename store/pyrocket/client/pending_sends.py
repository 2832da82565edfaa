"""Counts the sends of a producer that are not finished, and passes on their results."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from pyrocket.client.instance import closed_error
from pyrocket.errors import BrokerBusyError
from pyrocket.values.message import SendResult

_T = TypeVar("_T")


class PendingSends:
    """Counts the sends that are not finished."""

    def __init__(self, limit: int) -> None:
        self._limit, self._count = limit, 0
        self._changed = threading.Condition()

    def add(self, timeout_s: float) -> None:
        """Count a send. Raises BrokerBusyError (TOO_MANY_SENDS) if there is no room in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count < self._limit, timeout_s):
                raise BrokerBusyError(
                    f"{self._count} sends are not finished.",
                    remedy="Send more slowly, or increase `max_pending`.",
                    code="TOO_MANY_SENDS",
                )
            self._count += 1

    def remove(self) -> None:
        """Remove a finished send."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a send, regardless of the limit, while the `with` block runs."""
        with self._changed:
            self._count += 1
        try:
            yield
        finally:
            self.remove()

    def wait(self, timeout_s: float) -> None:
        """Wait until all sends are finished, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._count, timeout_s)


def chained(
    future: "Future[list[SendResult]]",
    convert: Callable[[list[SendResult]], _T],
    after: Callable[[Sequence[SendResult], BaseException | None], None] = lambda *_: None,
) -> "Future[_T]":
    """Return a future of the converted result; `after` is called before it is resolved.

    Cancelling it cancels the send.
    """
    result: Future[_T] = Future()

    def resolve(done: "Future[list[SendResult]]") -> None:
        error = closed_error() if done.cancelled() else done.exception()
        results = [] if error else done.result()
        after(results, error)
        if not result.set_running_or_notify_cancel():
            return
        if error is None:
            result.set_result(convert(results))
        else:
            result.set_exception(error)

    result.add_done_callback(lambda done: future.cancel() if done.cancelled() else None)
    future.add_done_callback(resolve)
    return result
