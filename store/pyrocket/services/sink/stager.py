"""Stages the rows of one task: encodes them as records in a file beside the log."""

import random
from collections.abc import Callable
from functools import partial
from types import TracebackType

import pyarrow as pa

from pyrocket.arguments import check_whole
from pyrocket.clock import Clock
from pyrocket.disk.os_errors import translating_methods, translating_os_errors
from pyrocket.engine.encoding import encode_rows
from pyrocket.engine.message_encoder import MessageEncoder, TopicRoute
from pyrocket.formats.content_sum import ContentSum, content_sum
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.services.sink.batch import SinkBatch, Staged
from pyrocket.services.sink.staged_file import StagedWriter
from pyrocket.services.sink.staging_area import StagingArea

_failing_whole = partial(
    translating_os_errors,
    then="run the write again",
    what="rows could not be staged in {root}: {error}. Nothing of this write is visible.",
)


@translating_methods
class Stager:
    """Stages the rows of one task. Leaving the `with` block without `finish` deletes the file.

    Nothing is flushed: after a crash the query stages its rows again. Example::

        with store.sink.stage(batch, partition=0, attempt=0) as stager:
            stager.append(rows, topic="t")
            staged = stager.finish()
    """

    def __init__(
        self,
        area: StagingArea,
        batch: SinkBatch,
        task: tuple[int, int],
        store: str,
        encoder: MessageEncoder,
        route_to: Callable[[str], TopicRoute],
        clock: Clock,
    ) -> None:
        """`task` has the partition and the attempt. The first rows create the file."""
        self._area, self._batch, self._task = area, batch, task
        self._store, self._encoder, self._route_to = store, encoder, route_to
        self._clock = clock
        self._routes: dict[str, int] = {}
        self._name = ""
        self._file: StagedWriter | None = None
        self._rows = self._bytes = self._left_out = 0
        self._content = ContentSum()

    def __enter__(self) -> "Stager":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._area.remove(self._name)

    @property
    def rows(self) -> int:
        """Number of rows staged so far."""
        return self._rows

    @property
    def bytes(self) -> int:
        """Size of these rows in the log."""
        return self._bytes

    def append(
        self, batch: pa.RecordBatch, *, topic: str | None = None, first_queue: int | None = None
    ) -> int:
        """Stage all rows of a batch, or none; return their number.

        The columns and parameters are those of `Store.append_batch`. Raises SchemaError,
        MessageError naming the row, TopicNotFoundError, and StoreUnavailableError (WRITE_FAILED),
        after which nothing more can be staged.
        """
        columns = check_send_batch(batch)
        if not len(columns):
            return 0
        if first_queue is not None:
            check_whole("first_queue", first_queue)
        start = random.randrange(1024) if first_queue is None else first_queue
        topics = batch.column("topic") if topic is None and "topic" in batch.schema.names else None
        content, columns = content_sum(columns, topics)
        encoded = encode_rows(self._encoder, batch, columns, topic, start, self._route)
        with _failing_whole(self._area.root):
            for one in encoded:
                self._add(one)
        self._content = self._content.plus(content)
        self._rows += len(columns)
        return len(columns)

    def leave_out(self, rows: int) -> None:
        """Count rows of the task that it does not write."""
        self._left_out += rows

    def _route(self, topic: str) -> TopicRoute:
        """Return the queues of a topic: the same ones for all rows of the task."""
        if topic not in self._routes:
            self._routes[topic] = self._route_to(topic).queues
        return TopicRoute(topic, self._routes[topic])

    def _add(self, encoded: EncodedBatch) -> None:
        if self._file is None:
            self._name, self._file = self._area.create(self._batch, *self._task)
        self._file.add(encoded)
        self._bytes += encoded.data.size

    def finish(self) -> Staged:
        """Close the file and return what `Sink.publish` needs; without rows there is no file."""
        length = checksum = 0
        if self._file is not None:
            with _failing_whole(self._area.root):
                length, checksum = self._file.finish()
                self._area.set_time(self._name, self._clock())
            self._file = None
        return Staged(
            name=self._name,
            rows=self._rows,
            bytes=self._bytes,
            file_bytes=length,
            checksum=checksum,
            content=self._content,
            store=self._store,
            topics=dict(self._routes),
            left_out=self._left_out,
        )
