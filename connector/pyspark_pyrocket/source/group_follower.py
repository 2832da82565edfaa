"""A consumer group that follows a stream: `commitToGroup`.

The offset from which Spark plans the next micro-batch is the end of one that it has committed, so
that is what the group gets; the offset that a new query starts from is not, and never moves it.
Spark asks once more when nothing is left, so the last micro-batch is included; after Trigger.Once,
or a kill, the next run of the query commits it. Small micro-batches share a commit a second.

A commit opens the store for writing for a moment, so a query that waits keeps no other writer out.
A commit that fails is retried later: a running query never fails because of it.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyrocket.errors import PyrocketError, StoreLockedError

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.transport.interface import Target

INTERVAL_SECONDS = 1.0
"""Between two commits, successful or not: each costs fsyncs, and Spark may ask 85 times a second.
RocketMQ's own consumers commit every five seconds."""

PATIENCE_SECONDS = 0.05
"""How long a commit waits for the write lock: other writers mostly hold it for less."""

LAST_PATIENCE_SECONDS = 5.0
"""How long the last commit of a query waits."""

_LOG = logging.getLogger("pyspark_pyrocket")


def check_group_can_follow(target: Target, options: ReadOptions) -> None:
    """Raise PyrocketError if a query's group cannot be committed to; it exists afterwards.

    A Java broker that holds the store causes StoreLockedError (STORE_IN_USE). Another writer that
    holds the write lock at the moment does not.
    """
    group = options.progress.commit_to
    if not group:
        return
    try:
        target.open_source().within(PATIENCE_SECONDS).commit(group, {})
    except StoreLockedError as error:
        if error.code == "LOCK_TIMEOUT":
            return
        raise StoreLockedError(
            f"Option 'commitToGroup' cannot move group {group!r}: {error.message}",
            remedy="Only a process that may write to the directory can. Stop that process, or leave"
            " 'commitToGroup' out: reading works at any time.",
            code=error.code,
        ) from error


class GroupFollower:
    """Commits to a query's group how far Spark has committed its micro-batches."""

    def __init__(
        self, target: Target, options: ReadOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._target, self._group, self.clock = target, options.progress.commit_to, clock
        self._known: Mapping[str, Any] | None = None
        self._committed = self._left = Offsets()
        self._not_before = 0.0
        self._is_failing = False

    def follow(self, start: Mapping[str, Any], *, last: bool = False) -> None:
        """Commit `start`, an offset that Spark has reached; costs nothing if it is the same.

        With `last` Spark may not ask again soon, so it waits for the write lock. Never raises.
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
        """Commit what has not been committed yet, if the interval has passed."""
        if self._left and (last or self.clock() >= self._not_before):
            self._commit_left(LAST_PATIENCE_SECONDS if last else PATIENCE_SECONDS)

    def stop(self) -> None:
        """Commit at once what has not been committed yet: the query ends."""
        if self._left:
            self._commit_left(PATIENCE_SECONDS)

    def _commit_left(self, patience: float) -> None:
        self._not_before = self.clock() + INTERVAL_SECONDS
        try:
            source = self._target.open_source().within(patience)
            source.commit(self._group, self._left)
            existing = source.topics()
        except (PyrocketError, OSError) as error:
            self._failed(error)
            return
        for topic in self._left.topics:
            if topic not in existing:
                # The same commit will not be possible later either.
                _LOG.warning(
                    "group %s has no offsets in topic %r, which does not exist", self._group, topic
                )
        self._committed, self._left = self._committed.merge(self._left), Offsets()
        self._is_failing = False

    def _failed(self, error: PyrocketError | OSError) -> None:
        if not self._is_failing:
            _LOG.warning(
                "group %s is behind its query and is moved as soon as possible: %s",
                self._group,
                error,
            )
        self._is_failing = True
