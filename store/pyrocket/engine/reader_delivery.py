"""What is due in a store that is open for reading: somebody has to write it.

A stream that reads from a directory in which nobody writes would wait for delayed messages for
ever. So it opens the store for writing for a moment when the words say that something is due, and
leaves a store alone in which nothing was ever delayed, or that is not ours.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from pyrocket.engine.engine import Engine
from pyrocket.errors import PyrocketError, StoreLockedError
from pyrocket.formats.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC

INTERVAL_SECONDS = 1.0
"""Between two times at which one reader opens the store for writing."""

_AFTER_FAILURE_SECONDS = 10.0
_log = logging.getLogger(__name__)


class Writable(Protocol):
    """A store that is open for writing."""

    def deliver_due(self) -> bool:
        """Do what is due; return whether there was anything."""
        ...

    def flush(self) -> None:
        """Make it durable."""
        ...

    def close(self, *, clean: bool = True) -> None:
        """Leave."""
        ...


class ReaderDelivery:
    """Has what is due done for the readers of one store. Not for sharing between threads."""

    def __init__(self, engine: Engine) -> None:
        self._layout, self._reader, self._clock = engine.layout, engine.reader, engine.clock
        self._not_before = 0.0

    def deliver_due(self, open_writable: Callable[[], Writable]) -> bool:
        """Have what is due done, at most once a second; return whether there was anything.

        Costs a look at the words while nothing is due. Never raises: where a Java broker has the
        directory, or nobody may write there, nothing happens.
        """
        if time.monotonic() < self._not_before or not self._is_due():
            return False
        self._not_before = time.monotonic() + INTERVAL_SECONDS
        try:
            return _deliver_once(open_writable)
        except (PyrocketError, OSError) as error:
            if getattr(error, "code", "") != "LOCK_TIMEOUT":  # Somebody writes, and will do it.
                _log.info("what is due in %s waits for a writer: %s", self._layout.root, error)
                self._not_before = time.monotonic() + _AFTER_FAILURE_SECONDS
            return False

    def _is_due(self) -> bool:
        try:
            due = self._reader.next_due()
            if due is None and not self._reader.identity.store_id:
                return False  # Only Java has written here.
        except (PyrocketError, OSError):
            return False  # Whoever reads is told.
        # Without true words nothing is known, and none are needed if nothing was ever delayed.
        return (due or 0) <= self._clock() and self._has_delayed()

    def _has_delayed(self) -> bool:
        topics = (SCHEDULE_TOPIC, TIMER_TOPIC)
        return any(self._layout.topic_queues(topic).exists() for topic in topics)


def _deliver_once(open_writable: Callable[[], Writable]) -> bool:
    store = open_writable()
    try:
        done = store.deliver_due()
        if done:
            with suppress(StoreLockedError):  # Others flush.
                store.flush()
        return done
    finally:
        store.close(clean=False)
