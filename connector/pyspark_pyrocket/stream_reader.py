"""Streaming reads: what Spark asks of a source between micro-batches, and the traps in it.

Spark makes this object twice: in the source runner, a process of its own on the driver, where it
lives as long as the query and answers everything about offsets; and in a planner, from where it
is pickled to the tasks, which only `read`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyrocket import Position, Store
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_pyrocket.checkpoint import StreamOffset
from pyspark_pyrocket.options.offsets import QueueNumbers
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.planner import current_bounds, partitions, topics_to_read
from pyspark_pyrocket.projection import Projection
from pyspark_pyrocket.source_runner import LOG
from pyspark_pyrocket.stores import forget, shared_store
from pyspark_pyrocket.stream_planner import (
    check_offset,
    initial_offset,
    latest_offset,
    maxima,
    next_offset,
    planned_ranges,
)
from pyspark_pyrocket.task import read_partition

Json = dict[str, Any]

_Look = tuple[Store, Position]
"""One look at a store: nothing has changed as long as the next one is equal."""


class RocketStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offsets and tasks of a streaming query."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options, self._projection = options, projection
        self._initial: Json | None = None
        self._target: QueueNumbers | None = None
        self._idle: tuple[_Look, Json] | None = None
        self._latest: tuple[_Look, Json] | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the offsets at which `Trigger.AvailableNow` will end: those of this moment."""
        self._store.advance()
        topics = topics_to_read(self._store, self._options)
        self._target = maxima(current_bounds(self._store, topics))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxOffsetsPerTrigger`; Spark hands it back to `latestOffset`."""
        rows = self._options.admission.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def initialOffset(self) -> Json:
        """Return where a new query starts: the same each time this query asks."""
        if self._initial is None:
            offset = initial_offset(self._store, self._options)
            self._log_start(offset)
            self._initial = offset.to_json()
        return self._initial

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return where the next micro-batch ends; `start` itself if there is nothing to read.

        Asked 85 times a second when idle, so it costs one look at the store's words then. Where
        nobody writes, delayed messages are delivered from here.
        """
        self._store.advance()
        look = self._look()
        if self._idle == (look, start):
            return start
        end = next_offset(
            self._store,
            self._options,
            StreamOffset.from_json(start),
            max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            target=self._target,
        )
        if end is not None:
            return end.to_json()
        self._idle = (look, start)
        return start

    def reportLatestOffset(self) -> Json:
        """Return the end of all queues, for the progress: its distance to endOffset is the lag."""
        look = self._look()
        if self._latest is None or self._latest[0] != look:
            self._latest = (look, latest_offset(self._store, self._options).to_json())
        return self._latest[1]

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch: the same for the same offsets, replayed or not."""
        until = StreamOffset.from_json(end)
        check_offset(self._store, self._options, until)
        ranges = planned_ranges(StreamOffset.from_json(start), until)
        return partitions(self._store, self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task."""
        return read_partition(partition, self._projection, verify_crc=self._options.verify_crc)

    def commit(self, end: Json) -> None:
        """Do nothing: the checkpoint is the only record of a query's progress.

        Spark calls this one batch late, and never for the last batch of a run, so no offset of a
        consumer group could be kept up to date here.
        """

    def stop(self) -> None:
        """Close the store."""
        forget(self._options.path)

    @property
    def _store(self) -> Store:
        return shared_store(self._options.path)

    def _look(self) -> _Look:
        store = self._store
        return store, store.position()

    def _log_start(self, offset: StreamOffset) -> None:
        bounds = maxima(current_bounds(self._store, offset.offsets))
        existing = sum(
            end - offset.offsets[topic][queue]
            for topic, queues in bounds.items()
            for queue, end in queues.items()
            if queue in offset.offsets[topic]
        )
        LOG.info(
            "a new query on %s in %s starts at %s: %d existing messages will be read",
            ", ".join(offset.offsets),
            self._options.path,
            self._options.span.starting.describe(),
            existing,
        )
