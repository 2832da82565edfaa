"""Delivers due messages on behalf of a store that is open for reading.

A stream that reads from a store without a writer would never see delayed messages. Therefore it
briefly opens the store for writing when the shared state shows that a message is due. The stream
never does so if no message was ever delayed, or if only a broker has written to the store.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from pyrocket.engine.engine import Engine
from pyrocket.errors import PyrocketError, StoreLockedError
from pyrocket.formats.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC

_log = logging.getLogger(__name__)


class Writable(Protocol):
    """A store that is open for writing."""

    def deliver_due(self) -> bool:
        """Deliver due messages; return whether any were due."""
        ...

    def flush(self) -> None:
        """Flush all records published before the call."""
        ...

    def close(self, *, clean: bool = True) -> None:
        """Close the store; with `clean`, the last open writer shuts the store down cleanly."""
        ...


class ReaderDelivery:
    """Delivers due messages for the readers of one store. Not thread-safe.

    `interval_seconds` is the minimum time between two openings of the store for writing.
    """

    interval_seconds, after_failure_seconds = 1.0, 10.0

    def __init__(self, engine: Engine) -> None:
        self._layout, self._reader, self._clock = engine.layout, engine.reader, engine.clock
        self._not_before = 0.0

    def deliver_due(self, open_writable: Callable[[], Writable]) -> bool:
        """Deliver due messages, at most once a second; return whether any were due.

        While no message is due, this only reads the shared state. Never raises: if a broker has the
        store open, or the directory is not writable, nothing is delivered.
        """
        if time.monotonic() < self._not_before or not self._is_due():
            return False
        self._not_before = time.monotonic() + self.interval_seconds
        try:
            return _deliver_once(open_writable)
        except (PyrocketError, OSError) as error:
            if getattr(error, "code", "") != "LOCK_TIMEOUT":  # A writer is active and delivers.
                _log.info("due messages in %s wait for a writer: %s", self._layout.root, error)
                self._not_before = time.monotonic() + self.after_failure_seconds
            return False

    def _is_due(self) -> bool:
        try:
            due = self._reader.next_due()
            if due is None and not self._reader.identity.store_id:
                return False  # Only brokers have written here.
        except (PyrocketError, OSError):
            return False  # The next read raises the error.
        # Without a valid shared state the due time is unknown: check whether a message was ever
        # delayed.
        return (due or 0) <= self._clock() and self._has_delayed()

    def _has_delayed(self) -> bool:
        topics = (SCHEDULE_TOPIC, TIMER_TOPIC)
        return any(self._layout.topic_queues(topic).exists() for topic in topics)


def _deliver_once(open_writable: Callable[[], Writable]) -> bool:
    store = open_writable()
    try:
        done = store.deliver_due()
        if done:
            with suppress(StoreLockedError):  # Another process is flushing.
                store.flush()
        return done
    finally:
        store.close(clean=False)
