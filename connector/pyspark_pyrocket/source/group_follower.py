"""A consumer group that follows a stream: `commitToGroup`.

The offset from which Spark plans the next micro-batch is the end of one that it has committed, so
that is where the group belongs; the offset that a new query starts from is not, and never moves it.
Spark asks once more when nothing is left, so the last micro-batch is included; after Trigger.Once,
or a kill, the next run of the query tells. Small micro-batches share a commit a second.

A commit opens the store for writing and leaves again: a query that waits keeps nobody out. What
cannot be written now is written later: a query never fails for it once it runs.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyrocket import Store, StoreConfig
from pyrocket.errors import (
    InvalidInputError,
    OffsetOutOfRangeError,
    PyrocketError,
    StoreLockedError,
)

from pyspark_pyrocket.options.positions import QueueNumbers
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.stream_offset import StreamOffset

INTERVAL_SECONDS = 1.0
"""Between two commits, successful or not: each costs fsyncs, and Spark may ask 85 times a second.
RocketMQ's own consumers commit every five seconds."""

PATIENCE_MS = 50
"""How long a commit waits for the turn to write: those of others mostly end sooner."""

LAST_PATIENCE_MS = 5_000
"""How long the last one of a query waits."""

_LOG = logging.getLogger("pyspark_pyrocket")


def check_group_can_follow(options: ReadOptions) -> None:
    """Raise PyrocketError if a query's group cannot be committed to; it is there afterwards.

    StoreLockedError (STORE_IN_USE) is one that a Java broker causes. Somebody who writes just now
    is no reason.
    """
    group = options.progress.commit_to
    if not group:
        return
    try:
        with _Writing(options.path, PATIENCE_MS) as store:
            store.groups.create(group)
    except StoreLockedError as error:
        if error.code == "LOCK_TIMEOUT":
            return
        raise StoreLockedError(
            f"Option 'commitToGroup' cannot move group {group!r}: {error.message}",
            remedy="Only one that may write to the directory can. Stop that process, or leave "
            "'commitToGroup' out: reading works at any time.",
            code=error.code,
        ) from error


class GroupFollower:
    """Commits to a query's group how far Spark has committed its micro-batches."""

    def __init__(self, options: ReadOptions) -> None:
        self._path, self._group = options.path, options.progress.commit_to
        self._told: Mapping[str, Any] | None = None
        self._committed: QueueNumbers = {}
        self._left: QueueNumbers = {}
        self._not_before = 0.0
        self._is_failing = False

    def follow(self, start: Mapping[str, Any], *, last: bool = False) -> None:
        """Commit `start`, an offset from which Spark goes on; costs nothing if it is the same.

        With `last` nobody may ask again soon, so it waits for its turn. Never raises.
        """
        if not self._group:
            return
        if start != self._told:
            self._told = start
            offset = StreamOffset.from_json(start)
            self._left = {} if offset.initial else self._moved(offset.offsets)
        self.retry(last=last)

    def retry(self, *, last: bool = False) -> None:
        """Commit what has not been committed yet, if there is any and it is time."""
        if self._left and (last or time.monotonic() >= self._not_before):
            self._commit_left(LAST_PATIENCE_MS if last else PATIENCE_MS)

    def stop(self) -> None:
        """Commit at once what has not been committed yet: the query ends."""
        if self._left:
            self._commit_left(PATIENCE_MS)

    def _commit_left(self, patience_ms: int) -> None:
        self._not_before = time.monotonic() + INTERVAL_SECONDS
        try:
            with _Writing(self._path, patience_ms) as store:
                for topic in list(self._left):
                    self._commit(store, topic)
        except (PyrocketError, OSError) as error:
            self._failed(error)
        else:
            self._is_failing = False

    def _moved(self, offsets: QueueNumbers) -> QueueNumbers:
        return {
            topic: queues
            for topic, queues in offsets.items()
            if queues and queues != self._committed.get(topic)
        }

    def _commit(self, store: Store, topic: str) -> None:
        offsets = self._left[topic]
        before = self._committed.get(topic, {})
        moved = {queue: at for queue, at in offsets.items() if before.get(queue) != at}
        try:
            commit_existing(store, self._group, topic, moved)
        except InvalidInputError as error:
            # The topic is gone, say: the same commit will not be possible later either.
            _LOG.warning("group %s is not told of topic %r: %s", self._group, topic, error)
        self._committed[topic] = offsets
        del self._left[topic]

    def _failed(self, error: PyrocketError | OSError) -> None:
        if not self._is_failing:
            _LOG.warning(
                "group %s is behind its query and is moved as soon as possible: %s",
                self._group,
                error,
            )
        self._is_failing = True


def commit_existing(store: Store, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit in those queues that the topic still has; a queue that was cut, up to its end."""
    queues = store.topics.get(topic).read_queues
    here = {queue: at for queue, at in offsets.items() if queue < queues}
    try:
        store.groups.commit(group, topic, here)
    except OffsetOutOfRangeError:
        ends = {queue: store.max_offset(topic, queue) for queue in here}
        store.groups.commit(
            group, topic, {queue: min(at, ends[queue]) for queue, at in here.items()}
        )


class _Writing:
    """The store, open for writing for a moment; its clean end is left to others."""

    def __init__(self, path: str, patience_ms: int) -> None:
        self._store = Store.open(path, config=StoreConfig(lock_timeout_ms=patience_ms))

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *exception: object) -> None:
        try:
            # A turn to write delivers what is due, too, and that has to become durable.
            with suppress(StoreLockedError):
                self._store.flush()
        finally:
            self._store.close(clean=False)
