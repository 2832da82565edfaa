"""`Deduplicated`: a listener that consumes each key once."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

from pyrocket.base.arguments import check_numbers, check_text
from pyrocket.base.clock import Clock, system_clock
from pyrocket.client.deduplication.store import DeduplicationStore, Mark
from pyrocket.client.results import ConsumeResult, ConsumeStatus, Listener
from pyrocket.errors import InvalidInputError
from pyrocket.values.message import StoredMessage

_log = logging.getLogger(__name__)


LEASE_MS = 15 * 60_000
"""The default lease: the time after which RocketMQ's consumers send back unfinished messages."""

KEEP_MS = 7 * 24 * 3_600_000
"""How long keys are marked as done by default. RocketMQ keeps messages for three days."""

EXPIRE_EVERY = 1000
"""After this many keys, expired marks are deleted: at most two for each of these keys."""


def message_key(message: StoredMessage) -> str:
    """Return the topic and the KEYS of a message, joined by `#`, as in RocketMQ's key index.

    KEYS identify what the message is about, for example an order; the producer sets them. The
    message id does not: a producer that sends an order again creates another id. Raises
    InvalidInputError (DEDUPLICATION_KEY) if the message has no keys.
    """
    if not message.keys:
        raise _no_key(message, "has no KEYS")
    return f"{message.topic}#{' '.join(message.keys)}"


class Deduplicated:
    """Wraps a listener so that it does not receive messages whose key has been consumed.

    The wrapper is a listener itself. `pyrocket.client.deduplication` describes what each store
    guarantees.

        store = SqliteMarks("/data/marks.db", group="billing")
        consumer = PushConsumer("billing", listener=Deduplicated(bill, store=store), ...)

    - The inner listener receives the messages with new keys, one message for each key. If there are
      none, it is not called, and the duplicates are acknowledged.
    - A message whose key another consumer has begun is sent back with all messages after it until
      the lease of that consumer ends. Retries must therefore continue for longer than the lease;
      otherwise a message becomes a dead letter if a consumer dies.
    - If the listener raises an exception, or its result is not a SUCCESS, the marks of the batch
      are released.
      After a partial SUCCESS, the marks after `ack_index` are released; `TransactionMarks` rolls
      back the whole batch. Exceptions and results of other types are passed on.

    Calls from several threads are safe if the inner listener and `key` are.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        store: DeduplicationStore,
        key: Callable[[StoredMessage], str] = message_key,
        lease_ms: int = LEASE_MS,
        keep_ms: int = KEEP_MS,
        clock: Clock = system_clock,
    ) -> None:
        """Wrap a listener.

        `key` returns the string that identifies the work of a message. `lease_ms` must be longer
        than the listener runs for a batch; otherwise another consumer may repeat the work. Messages
        are recognised as duplicates for `keep_ms` after they were consumed. Machines that share a
        store need clocks that differ by much less than the lease.

        Raises InvalidInputError: NOT_A_NUMBER, DEDUPLICATION_TIME, DEDUPLICATION_LISTENER,
        DEDUPLICATION_STORE.
        """
        check_numbers(lease_ms=lease_ms, keep_ms=keep_ms)
        for name, value in (("lease_ms", lease_ms), ("keep_ms", keep_ms)):
            if value < 1:
                raise InvalidInputError(
                    f"{name} is {value}.", remedy="Use at least 1 ms.", code="DEDUPLICATION_TIME"
                )
        for name, function in (("listener", listener), ("key", key)):
            if not callable(function):
                raise InvalidInputError(
                    f"{name} is {function!r}, which cannot be called.",
                    remedy="Use a function.",
                    code="DEDUPLICATION_LISTENER",
                )
        if not hasattr(store, "begin"):
            raise InvalidInputError(
                f"store is {store!r}, which cannot keep marks.",
                remedy="Use SqliteMarks, TransactionMarks, or a DeduplicationStore of your own.",
                code="DEDUPLICATION_STORE",
            )
        self._listener, self._store, self._key = listener, store, key
        self._lease_ms, self._keep_ms, self._clock = lease_ms, keep_ms, clock
        self._lock, self._since_expiry = threading.Lock(), 0

    def __call__(self, messages: Sequence[StoredMessage]) -> ConsumeResult:
        """Consume a batch; return the result for the whole batch.

        Raises what the inner listener, `key` and the store raise, and InvalidInputError
        (DEDUPLICATION_KEY, NOT_A_TEXT) if `key` does not return a valid, non-empty string. The
        whole batch is then delivered again.
        """
        keys = [self._key_of(message) for message in messages]
        now, owner, distinct = self._clock(), uuid4().hex, list(dict.fromkeys(keys))
        self._expire(len(distinct), now)
        marks = self._store.begin(distinct, owner, now, self._lease_ms)
        states = dict(zip(distinct, marks, strict=False))
        settled = {key for key, mark in states.items() if mark is Mark.DONE}
        begun = [key for key, mark in states.items() if mark is Mark.BEGUN]
        if begun:
            first = dict(zip(reversed(keys), reversed(messages), strict=True))
            result = self._consume([first[key] for key in begun], begun, owner)
            if not _is_success(result):
                return result
            done = self._settle(begun, result.consumed(len(begun)), owner)
            settled.update(done)
        return _result(keys, settled)

    def _key_of(self, message: StoredMessage) -> str:
        key = self._key(message)
        if not key:
            raise _no_key(message, f"has the key {key!r}")
        check_text(key=key)
        return key

    def _expire(self, keys: int, now: int) -> None:
        with self._lock:
            self._since_expiry += keys
            if self._since_expiry < EXPIRE_EVERY:
                return
            limit, self._since_expiry = 2 * self._since_expiry, 0
        self._store.expire(now, limit)

    def _consume(
        self, messages: list[StoredMessage], begun: list[str], owner: str
    ) -> ConsumeResult:
        """Call the inner listener. Release all marks if it raises or does not succeed."""
        try:
            result = self._listener(messages)
        except BaseException:
            self._release(begun, owner)
            raise
        if not _is_success(result):
            self._release(begun, owner)
        return result

    def _settle(self, begun: list[str], consumed: int, owner: str) -> list[str]:
        """Mark the first keys as done and release the others; return the keys that are done."""
        if consumed < len(begun) and self._store.is_atomic:
            consumed = 0
        done, failed = begun[:consumed], begun[consumed:]
        if done:
            self._store.done(done, owner, self._clock(), self._keep_ms)
        if failed:
            self._release(failed, owner)
        return done

    def _release(self, keys: list[str], owner: str) -> None:
        try:
            self._store.release(keys, owner)
        except Exception:
            # The leases end by themselves. The exception of the listener is more important.
            _log.warning(
                "The marks of %d messages could not be released.", len(keys), exc_info=True
            )


def _is_success(result: object) -> bool:
    return isinstance(result, ConsumeResult) and result.status is ConsumeStatus.SUCCESS


def _result(keys: Iterable[str], settled: set[str]) -> ConsumeResult:
    """Return SUCCESS up to the first key that is not settled."""
    states = [key in settled for key in keys]
    if all(states):
        return ConsumeResult.SUCCESS
    first = states.index(False)
    return ConsumeResult.success_up_to(first - 1) if first else ConsumeResult.RECONSUME_LATER


def _no_key(message: StoredMessage, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"The message {message.msg_id} of the topic {message.topic!r} {what}.",
        remedy="Set KEYS when the message is sent, or give Deduplicated a `key` function that"
        " returns a non-empty string for every message.",
        code="DEDUPLICATION_KEY",
    )
