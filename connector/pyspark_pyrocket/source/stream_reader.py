"""Streaming reads: the offsets that Spark requests between micro-batches, and the tasks.

Spark creates the reader twice: in the source runner, a separate process on the driver that runs as
long as the query and serves all calls about offsets; and in a planner, which pickles it for the
tasks. Tasks only call `read`.

Only the first call about offsets tells whether the query is new or continues from a checkpoint.
Until then nothing is opened: a topic that is missing is an error for a new query, and a loss for
one that has read it.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyrocket.base.arguments import counted
from pyrocket.base.config import DEFAULT_QUEUES
from pyrocket.errors import PyrocketError, StoreUnavailableError
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_pyrocket.boundary import called_by_spark
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.columns.values import require_value_schema
from pyspark_pyrocket.columns.views import check_columns
from pyspark_pyrocket.options.option import STREAM
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.admission import Intake
from pyspark_pyrocket.source.bad_records import prepare_bad_records
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.group_follower import GroupFollower, check_group_can_follow
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.planner import check_target, partitions, read_bounds
from pyspark_pyrocket.source.resume import waits_for_recovery, what_remains
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.source.stream_planner import (
    empty_offset,
    initial_offset,
    latest_offset,
    next_offset,
    planned_ranges,
)
from pyspark_pyrocket.source.task import read_partition
from pyspark_pyrocket.transport.interface import MessageSource, Target
from pyspark_pyrocket.transport.planning import Planning
from pyspark_pyrocket.transport.targets import target_of
from pyspark_pyrocket.worker import (
    LOG,
    exit_on_sigterm,
    ignore_sigterm,
    in_source_runner,
    log_to_stderr,
    some_of,
)

Json = dict[str, Any]

IDLE_WAIT_S = 0.05
"""The maximum time for which a call for an offset waits, if the source is notified of changes.
Without the wait, Spark would call 85 times a second. The wait also delays other sources of the
query.
"""


@called_by_spark
class RocketStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offsets and tasks of a streaming query."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options, self._projection = options, projection
        self._intake = Intake(options.admission)
        self._opened: Target | None = None
        self.follower = GroupFollower(self._source, options)
        self._losses = Losses(options.loss)
        self._is_available_now = self._was_asked = False
        self._initial: Json | None = None
        self._start_error: PyrocketError | None = None
        self._last_ends: Offsets | None = None
        self._idle: tuple[Hashable, Json] | None = None
        self._latest: tuple[Hashable, Json] | None = None
        self._waits = False
        self._planning = Planning()
        self._planned: tuple[Json, Json] | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end at the ends that the queues have at the first call about offsets."""
        self._is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits; Spark passes it to `latestOffset`, which applies them all."""
        limits = self._options.admission
        if limits.max_rows is not None:
            return ReadMaxRows(limits.max_rows)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_rows is None else ReadMinRows(limits.min_rows)

    def initialOffset(self) -> Json:
        """Return the initial offset of a new query; every call returns the same one.

        With `createIfMissing`, this creates the store. Spark also calls this before it replays the
        first micro-batch, which does not depend on the initial offset. So if topics or offsets are
        wrong, `latestOffset` raises the error.
        """
        if self._initial is None:
            source = self._view(self._source())
            try:
                offset = initial_offset(source, self._options)
                self._log_start(offset, source)
            except StoreUnavailableError:
                raise
            except PyrocketError as error:
                offset, self._start_error = empty_offset(source), error
            self._initial = offset.to_json()
        return self._initial

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the end offset of the next micro-batch; `start` if there is nothing to read.

        Spark calls this 85 times a second while the query is idle, so an idle call only reads the
        source's version, or waits for a new one. Every call also delivers delayed messages that are
        due, for stores without a writer.
        """
        source = self._source(start)
        if self._start_error is not None and start == self._initial:
            raise self._start_error
        self._deliver_due(source)
        version = source.version()
        if self._idle == (version, start) and not self._intake.is_over(source):
            self.follower.retry()
            if not self._sees_change(source, version):
                return start
            version = source.version()
        since = self._offset(start)
        view = self._view(source, since)
        is_resumed = not self._was_asked and start != self._initial
        if is_resumed and not waits_for_recovery(view, since):
            self._log_resumption(since, view)
        self._was_asked = True
        end = next_offset(
            view,
            self._options,
            since,
            take=None if isinstance(limit, ReadAllAvailable) else self._take,
            target=self._last_ends,
            losses=self._losses,
        )
        # With AvailableNow, this is Spark's last call if nothing is left to read.
        self.follower.follow(start, last=end is None and self._last_ends is not None)
        if end is not None:
            self._planned = start, end.to_json()
            return self._planned[1]
        self._idle = (version, start)
        return start

    def _sees_change(self, source: MessageSource, version: Hashable) -> bool:
        """Wait for a change, if an earlier call was idle as well; return whether there was one."""
        waits = self._waits and self._last_ends is None
        self._waits = True
        return waits and source.wait_for_change(version, IDLE_WAIT_S)

    def reportLatestOffset(self) -> Json:
        """Return the end of all queues; Spark's progress shows it as latestOffset.

        Its distance to endOffset is the lag.
        """
        version = self._source().version()
        if self._latest is None or self._latest[0] != version:
            self._latest = (version, self._ends())
        return self._latest[1]

    def _ends(self) -> Json:
        """Return the end of all queues; the query's own offset while the store is recovering."""
        try:
            return latest_offset(self._view(self._source()), self._options).to_json()
        except StoreUnavailableError as error:
            if error.code != "STORE_RECOVERING" or self._idle is None:
                raise
            return self._idle[1]

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch; a replay of the same offsets gets the same tasks."""
        until, source = self._offset(end), self._source(end)
        ranges = planned_ranges(self._offset(start), until)
        if self._planned != (start, end):
            view = self._view(source, until)
            ranges = what_remains(view, until, ranges, Losses(self._options.loss))
        return partitions(source, self._options, ranges, until.brokers)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._projection, self._options)

    def commit(self, end: Json) -> None:
        """Let the next call for an offset return at once, because the query is not idle.

        Spark may have run a micro-batch of another source. Offsets are not committed here, because
        Spark calls this one batch late, and never for the last batch of a run. `latestOffset`
        commits the offsets of the group that follows the query.
        """
        self._waits = False

    def stop(self) -> None:
        """Commit the offsets of the group that follows the query, and close the source."""
        if in_source_runner():
            ignore_sigterm()
        self.follower.stop()
        if self._opened is not None:
            self._opened.close_source()

    def _source(self, offset: Json | None = None) -> MessageSource:
        """Return the open source. `offset` is one of the checkpoint, or None for a new query.

        The first call checks and prepares what the query needs, and fixes where it ends.
        """
        if self._opened is None:
            known = None if offset is None else self._offset(offset).topics
            target = target_of(self._options, waits=known is not None)
            check_target(target, self._options)
            prepare_source(target, self._options, known)
            self._opened = target
        source = self._opened.open_source()
        if self._is_available_now and self._last_ends is None:
            self._deliver_due(source)
            self._last_ends = Offsets.ends(read_bounds(source, self._options, known=None))
        return source

    def _view(self, source: MessageSource, offset: StreamOffset | None = None) -> MessageSource:
        """Return a view of the source for one call of Spark that plans from this offset."""
        known = offset.topics if offset is not None else ()
        return self._planning.view(source, {*self._options.subscription.topics, *known})

    def _offset(self, value: Json) -> StreamOffset:
        return StreamOffset.from_json(value).without(self._options.loss.removed_brokers)

    def _deliver_due(self, source: MessageSource) -> None:
        if not self._options.progress.read_only:
            source.deliver_due()

    def _take(self, start: Offsets, end: Offsets) -> Offsets:
        return self._intake.take(self._source(), start, end, waits=self._last_ends is None)

    def _log_start(self, offset: StreamOffset, source: MessageSource) -> None:
        for note in self._options.span.notes:
            LOG.info("%s", note)
        LOG.info(
            "a new query on %s in %s starts at %s: %s will be read, %s",
            *self._beginning(offset, source, "existing message"),
        )

    def _log_resumption(self, offset: StreamOffset, source: MessageSource) -> None:
        LOG.info(
            "resuming from the checkpoint on %s in %s; the configured start (%s) is ignored: %s "
            "will be read, %s",
            *self._beginning(offset, source, "message"),
        )
        asked = self._options.subscription
        left = [topic for topic in offset.topics if not asked.covers(topic)]
        new = [topic for topic in asked.topics if topic not in offset.topics]
        if left:
            LOG.warning("%s is no longer read; the checkpoint keeps its offsets", some_of(left))
        if new:
            LOG.warning("%s is new, and is read from its first message", some_of(new))

    def _beginning(self, offset: StreamOffset, source: MessageSource, noun: str) -> Iterator[str]:
        yield some_of(offset.topics)
        yield source.target.describe()
        yield self._options.span.starting.describe()
        # The number of messages after the offset, in topics that still exist.
        bounds = read_bounds(source, self._options, known=offset.offsets)
        yield counted(Offsets.ends(bounds).minus(offset.offsets).total(), noun)
        yield self._options.admission.describe()


@called_by_spark
class FailedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error of an invalid query at Spark's first call."""

    def __init__(self, error: PyrocketError) -> None:
        self._error = error

    def _fail(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    prepareForTriggerAvailableNow = getDefaultReadLimit = latestOffset = read = _fail


def stream_reader(request: Request, schema: StructType) -> DataSourceStreamReader:
    """Check the options and columns of a query, and return its reader.

    In Spark's source runner, an invalid query gets a `FailedReader`: if this function raised, the
    runner would fail with an UnboundLocalError of its own and hide the error.
    """
    try:
        options = ReadOptions.parse(request, STREAM)
        projection = Projection.of(schema, options.payload)
        require_value_schema(options.payload, schema)
        check_columns(options.view, projection.scan)
    except PyrocketError as error:
        if not in_source_runner():
            raise
        return FailedReader(error)
    if in_source_runner():
        log_to_stderr()
        exit_on_sigterm()
    return RocketStreamReader(options, projection)


def prepare_source(target: Target, options: ReadOptions, known: Collection[str] | None) -> None:
    """Check the store, the group and the topic for bad records; create what is missing.

    With `createIfMissing`, that includes the topics of a new query (`known` is None) and its store,
    but only the topics that are not `known` to a checkpoint. Raises PyrocketError.
    """
    if options.create_if_missing:
        _create_missing(target, options, known)
    target.open_source()  # Raises an error if the store does not exist.
    check_group_can_follow(target, options)
    prepare_bad_records(target, options)


def _create_missing(target: Target, options: ReadOptions, known: Collection[str] | None) -> None:
    """Create the store and the named topics; open the store for writing only if needed."""
    asked, source = options.subscription, target.find_source()
    wanted = [topic for topic in asked.topics if topic not in (known or ())]
    if source is None and known is not None:
        return
    if source is not None and source.topics().keys() >= set(wanted):
        return
    sink = target.open_sink(create=True)
    try:
        for topic in wanted:
            assigned = asked.queues.get(topic, (0,))
            sink.prepare(topic, queues=max(DEFAULT_QUEUES, max(assigned) + 1))
    finally:
        sink.close(clean=False)
