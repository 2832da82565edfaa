"""`AppendQueue`: a thread appends the records of all pending requests in groups.

Concurrent requests share one exclusive section and one fsync, and no other thread waits for the
disk.

With synchronous flush, a client often sends its next request right after a reply, just too late for
the next fsync. A group therefore waits briefly until it has as many requests as the previous group,
like PostgreSQL's `commit_delay`. A single client never waits.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from pyrocket.base.rounds import Rounds
from pyrocket.engine.received_records import ReceivedRecords
from pyrocket.errors import BrokerBusyError, StoreUnavailableError
from pyrocket.values.message import AppendResult, SendStatus

Append = Callable[[ReceivedRecords], "Future[AppendResult]"]
"""`AppendQueue.put`: appends records with the next group append."""

MAX_REQUESTS = 2000
MAX_BYTES = 64 << 20
GROUP_BYTES = 8 << 20
"""Maximum bytes of a group; a single request may be larger."""

_PATIENCE = 0.5
"""Maximum wait for more requests, as a fraction of the duration of the previous append."""

Confirm = Callable[[], "Future[SendStatus]"]
"""Returns the future status of all that was appended before the call."""

AppendTogether = Callable[[Sequence[ReceivedRecords]], Sequence[AppendResult | Exception]]
"""Appends requests in one exclusive section, and returns the result or error of each."""


CONFIRMED: "Future[SendStatus]" = Future()
CONFIRMED.set_result(SendStatus.SEND_OK)
_UNCONFIRMED: "Future[SendStatus]" = Future()
_UNCONFIRMED.set_result(SendStatus.FLUSH_SLAVE_TIMEOUT)


@dataclass
class _Waiting:
    records: ReceivedRecords
    confirms: bool
    result: Future[AppendResult] = field(default_factory=Future)


class AppendQueue:
    """The pending append requests, and the thread that appends them."""

    def __init__(
        self,
        append: AppendTogether,
        *,
        confirm: Confirm = lambda: CONFIRMED,
        gathers: bool = False,
        max_requests: int = MAX_REQUESTS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`confirm` is called after each append, and decides when its results are returned.

        With `gathers`, a group waits until it has as many requests as the previous group.
        """
        self._append, self._confirm, self._gathers = append, confirm, gathers
        self._expected, self._patience_s = 0, 0.0
        self.rounds = Rounds()
        self.after_append: Callable[[], None] = lambda: None
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="pyrocket-append", daemon=True)
        self._thread.start()

    def put(self, records: ReceivedRecords, *, cancellable: bool = True) -> "Future[AppendResult]":
        """Add records without waiting, and return a future with the result of the append.

        Cancelling the future before the append starts cancels the append. Use
        `cancellable=False` if the caller relies on the append; its result does not wait for
        `confirm`. Raises BrokerBusyError if too many requests or bytes are pending,
        StoreUnavailableError.
        """
        with self._changed:
            if self._closed:
                raise StoreUnavailableError("the broker is stopping.", remedy="Try again.")
            full = self._bytes and self._bytes + records.bytes > self._max_bytes
            if full or len(self._waiting) >= self._max_requests:
                raise BrokerBusyError(
                    f"{len(self._waiting)} appends of {self._bytes} bytes are waiting.",
                    remedy="Try again later.",
                )
            waiting = _Waiting(records, confirms=cancellable)
            if not cancellable:
                waiting.result.set_running_or_notify_cancel()
            self._waiting.append(waiting)
            self._bytes += records.bytes
            self._changed.notify()
        return waiting.result

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Append the pending records, and stop the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            began = time.monotonic()
            self._serve(group)
            if self._gathers:
                self._expected = len(group) + len(self._waiting)
                self._patience_s = _PATIENCE * (time.monotonic() - began)

    def _next_group(self) -> list[_Waiting]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._changed.wait_for(self._is_group, self._patience_s)
            group, size = list[_Waiting](), 0
            while self._waiting and (
                not group or size + self._waiting[0].records.bytes <= GROUP_BYTES
            ):
                group.append(self._waiting.popleft())
                size += group[-1].records.bytes
            self._bytes -= size
        return group

    def _is_group(self) -> bool:
        full = len(self._waiting) >= self._expected or self._bytes >= GROUP_BYTES
        return full or self._closed

    def _serve(self, group: list[_Waiting]) -> None:
        # Skip requests that were cancelled in the meantime.
        group = [
            request
            for request in group
            if request.result.running() or request.result.set_running_or_notify_cancel()
        ]
        try:
            results = self._append([request.records for request in group])
        except Exception as error:  # Callers must not wait forever because of a defect.
            self.rounds.record("appending failed", error)
            results = [error] * len(group)
        else:
            self.rounds.succeeded("appending failed")
        self.rounds.run("waking long polls failed", self.after_append)
        held = [_UNCONFIRMED]  # If it cannot be confirmed: what was appended stays.
        self.rounds.run("confirming failed", lambda: held.append(self._confirm()))
        for request, result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                request.result.set_exception(result)
            else:
                status = held[-1] if request.confirms else CONFIRMED
                status.add_done_callback(partial(_answer, request, result))


def _answer(request: _Waiting, result: AppendResult, status: "Future[SendStatus]") -> None:
    is_ok = status.result() is SendStatus.SEND_OK
    request.result.set_result(result if is_ok else replace(result, status=status.result()))
