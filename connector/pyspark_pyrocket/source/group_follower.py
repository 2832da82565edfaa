"""A consumer group that follows a stream: `commitToGroup`.

The start offset of the next micro-batch is the end of a micro-batch that Spark has committed, so
that offset is committed to the group. The initial offset of a new query is not committed and never
moves the group. Spark requests an offset once more when nothing is left, so the end of the last
micro-batch is committed as well. After Trigger.Once or a kill, the next run of the query commits
that end. There is at most one commit a second, for all micro-batches since the last one.

A commit opens the store for writing only briefly, so an idle query does not keep out other writers.
A commit that fails is retried later and never fails a running query.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from pyrocket.errors import PyrocketError, StoreLockedError

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.transport.interface import MessageSource, Target
from pyspark_pyrocket.worker import LOG

INTERVAL_SECONDS = 1.0
"""Minimum time between two commits, which cost fsyncs: Spark requests offsets 85 times a second.

RocketMQ's own consumers commit every five seconds."""

LOCK_SECONDS = 0.05
"""How long a commit waits for the write lock; most writers hold it for a shorter time."""

LAST_LOCK_SECONDS = 5.0
"""How long the last commit of a query waits for the write lock."""

CALL_SECONDS = 5.0
"""The deadline of a commit over a network, which includes an fsync on the broker's disk."""


def check_group_can_follow(target: Target, options: ReadOptions) -> None:
    """Create a query's group if it is missing. Raises PyrocketError if it is not writable.

    A running broker that holds the store causes StoreLockedError (STORE_IN_USE). A writer that
    holds the write lock at the moment causes no error.
    """
    group = options.progress.commit_to
    if not group:
        return
    try:
        target.open_source().within(CALL_SECONDS, lock=LOCK_SECONDS).commit(group, {})
    except StoreLockedError as error:
        if error.code == "LOCK_TIMEOUT":
            return
        raise StoreLockedError(
            f"Option 'commitToGroup' cannot move group {group!r}: {error.message}",
            remedy="Stop the process that holds the store, or remove 'commitToGroup': reading is"
            " always possible.",
            code=error.code,
        ) from error


class GroupFollower:
    """Commits to a query's group the offsets that Spark has committed."""

    def __init__(self, source: Callable[[], MessageSource], options: ReadOptions) -> None:
        """`source` returns the open source."""
        self._source, self._group = source, options.progress.commit_to
        self.clock: Callable[[], float] = time.monotonic
        self._known: Mapping[str, Any] | None = None
        self._committed = self._left = Offsets()
        self._not_before = 0.0
        self._is_failing = False

    def follow(self, start: Mapping[str, Any], *, last: bool = False) -> None:
        """Commit `start`, an offset that Spark has committed, unless it is unchanged.

        With `last`, wait longer for the write lock: Spark may not call again soon. Never raises.
        """
        if not self._group:
            return
        if start != self._known:
            self._known = start
            offset = StreamOffset.from_json(start)
            moved = offset.offsets.changed_from(self._committed)
            self._left = Offsets() if offset.initial else moved
        self.retry(last=last)

    def retry(self, *, last: bool = False) -> None:
        """Commit the pending offsets if the interval has passed, or if `last`."""
        if self._left and (last or self.clock() >= self._not_before):
            self._commit_left(LAST_LOCK_SECONDS if last else LOCK_SECONDS)

    def stop(self) -> None:
        """Commit the pending offsets immediately, because the query ends."""
        if self._left:
            self._commit_left(LOCK_SECONDS)

    def _commit_left(self, lock: float) -> None:
        self._not_before = self.clock() + INTERVAL_SECONDS
        try:
            source = self._source().within(CALL_SECONDS, lock=lock)
            source.commit(self._group, self._left)
            existing = source.topics()
        except (PyrocketError, OSError) as error:
            self._failed(error)
            return
        for topic in self._left.topics:
            if topic not in existing:
                # A retry would not succeed either.
                LOG.warning(
                    "group %s has no offsets in topic %r, which does not exist", self._group, topic
                )
        self._committed, self._left = self._committed.merge(self._left), Offsets()
        self._is_failing = False

    def _failed(self, error: PyrocketError | OSError) -> None:
        if not self._is_failing:
            LOG.warning(
                "the offsets of group %s could not be committed; the commit will be retried: %s",
                self._group,
                error,
            )
        self._is_failing = True
