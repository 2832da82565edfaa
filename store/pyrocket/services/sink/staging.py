"""Stages rows in files beside the log: a `Stager` for each task, in the files of `StagingArea`.

There is a folder for each query, and a folder for published files that will be reused.

A file name contains the batch, partition and attempt, and a random suffix. A few published files
are kept for the next tasks: overwriting a file that is in the page cache takes a tenth of the time
of creating a new one.
"""

import os
import random
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from pyrocket.base.arguments import check_whole
from pyrocket.disk import io
from pyrocket.disk.layout import Layout, listed
from pyrocket.disk.os_errors import translating_methods, translating_os_errors
from pyrocket.engine.engine import Engine
from pyrocket.engine.message_encoder import AppendRoute, MessageEncoder
from pyrocket.errors import MessageError, SinkError
from pyrocket.formats.content_sum import content_sum
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.metadata.topics import check_topic_name
from pyrocket.services.sink.batch import SinkBatch
from pyrocket.services.sink.staged_file import StagedFileWriter
from pyrocket.values.sink import ContentSum, Staged

LEFTOVERS_MS = 7 * 24 * 3_600_000
"""Age after which a staged file is a leftover."""

CLEAN_EVERY_MS = 3_600_000
_NAME = re.compile(r"[0-9a-f]{32}/[0-9]{20}-[0-9]{5,20}-[0-9]{1,20}-[0-9a-f]{32}", re.ASCII)
_RECYCLED = "free"
_CLEANED = "cleaned"
_MAX_RECYCLED_FILES = 16
_MAX_RECYCLED_BYTES = 1024 * 1024 * 1024

failing_whole = partial(
    translating_os_errors,
    then="run the write again",
    what="rows could not be staged in {root}: {error}. Nothing of this write is visible.",
)


class Leftovers(NamedTuple):
    """Staged files that will not be published: their number and bytes."""

    files: int = 0
    bytes: int = 0


class StagingArea:
    """The staged files of one store. Needs no lock: a file has one owner at a time."""

    def __init__(self, layout: Layout) -> None:
        self.root = layout.staging
        self._recycled = layout.staging / _RECYCLED

    def create(
        self, batch: SinkBatch, partition: int, attempt: int
    ) -> tuple[str, StagedFileWriter]:
        """Create or reuse a file; return its name relative to the folder, and its writer."""
        name = staged_name(batch, partition, attempt)
        return name, StagedFileWriter(self.path(name), self.open(name))

    def open(self, name: str) -> int:
        """Return the descriptor of a staged file, which is created or reused if it is missing."""
        path = self.path(name)
        while True:
            with suppress(FileNotFoundError):  # Another process deleted the empty folder.
                io.make_directory(path.parent)
                is_there = path.exists() or self._reuse(path)
                return io.open_file(path, os.O_RDWR | (0 if is_there else os.O_CREAT | os.O_EXCL))
            self.root.stat()  # Fails if it is not only that folder that is missing.

    def _reuse(self, path: Path) -> bool:
        for file in listed(self._recycled):
            with suppress(FileNotFoundError):  # Another task took it.
                io.rename(file, path)
                return True
        return False

    @property
    def bytes(self) -> int:
        """Size on disk of the files that are not published yet."""
        return sum(
            status.st_blocks * 512
            for folder in self._folders()
            if folder.name != _RECYCLED
            for _, status in _statuses(folder)
        )

    def path(self, name: str) -> Path:
        """Return the path of a staged file. Raises ValueError for an invalid name."""
        folder, _, file = name.partition("/")
        if not file or {"/", "\0"} & set(file) or folder in ("..", ".", "") or file in ("..", "."):
            raise ValueError(f"{name!r} is not a staged file")
        return self.root / folder / file

    def set_time(self, name: str, now_ms: int) -> None:
        """Set the time from which a file's age is counted."""
        for path in self._parts(name):
            with suppress(FileNotFoundError):  # Another run has published the batch.
                io.set_time(path, now_ms)

    def remove(self, name: str) -> None:
        """Delete a file that will not be published."""
        for path in self._parts(name):
            io.unlink(path)

    def _parts(self, name: str) -> list[Path]:
        """Return the paths of a file and its segments that exist."""
        path = self.path(name)
        return [file for file in listed(path.parent) if file.name.partition(".")[0] == path.name]

    def recycle(self, name: str) -> None:
        """Keep a published file for another task, or delete the file if enough files are kept."""
        path = self.path(name)
        for part in self._parts(name):
            if part != path:
                io.unlink(part)
        sizes = [file.stat().st_size for file in listed(self._recycled)]
        with suppress(FileNotFoundError):
            room = _MAX_RECYCLED_BYTES - sum(sizes) - path.stat().st_size
            if len(sizes) >= _MAX_RECYCLED_FILES or room < 0:
                io.unlink(path)
                return
            io.make_directory(self._recycled)
            io.rename(path, self._recycled / uuid.uuid4().hex)

    def remove_batches_up_to(self, name: str) -> None:
        """Delete the query's staged files for the file's batch and earlier batches."""
        published = self.path(name)
        for path in listed(published.parent):
            if _batch_of(path) <= _batch_of(published):
                io.unlink(path)

    def remove_folder_of(self, name: str) -> None:
        """Delete the folder of a deleted file, unless it has other files."""
        with suppress(OSError):
            io.remove_directory(self.path(name).parent)

    def clean(self, now_ms: int, *, now: bool = False) -> Leftovers:
        """Delete leftover files; return their number and bytes.

        Without `now`, the processes of a store do so at most once every CLEAN_EVERY_MS.
        """
        if not self.root.is_dir() or not (now or self._is_due(now_ms)):
            return Leftovers()
        old = self._old_files(now_ms)
        for path, _ in old:
            io.unlink(path)
        for folder in self._folders():
            with suppress(OSError):
                io.remove_directory(folder)
        return _sum(old)

    def _is_due(self, now_ms: int) -> bool:
        """Return whether cleaning is due; if so, the next cleaning is due CLEAN_EVERY_MS later."""
        mark = self.root / _CLEANED
        if 0 <= now_ms - _time_ms(mark) < CLEAN_EVERY_MS:
            return False
        os.close(io.open_file(mark, os.O_WRONLY | os.O_CREAT))
        io.set_time(mark, now_ms)
        return True

    def leftovers(self, now_ms: int) -> Leftovers:
        """Return the number and bytes of the files that `clean` would delete."""
        return _sum(self._old_files(now_ms))

    def remove_recycled(self) -> None:
        """Delete the files kept for reuse, because the disk is full."""
        for path in listed(self._recycled):
            io.unlink(path)

    def _old_files(self, now_ms: int) -> list[tuple[Path, int]]:
        """Return the leftover files, each with its size in bytes."""
        return [
            (path, status.st_blocks * 512)
            for folder in self._folders()
            for path, status in _statuses(folder)
            if status.st_mtime_ns // 1_000_000 < now_ms - LEFTOVERS_MS
        ]

    def _folders(self) -> list[Path]:
        return [path for path in listed(self.root) if path.is_dir()]


class StagedOutput(Protocol):
    """A file in which one task stages its rows."""

    def add(self, batch: EncodedBatch) -> None:
        """Write a batch at the end."""

    def finish(self) -> tuple[int, int]:
        """Complete and close the file; return its length and checksum."""

    def close(self) -> None:
        """Close the file."""


class StagingPlace(Protocol):
    """A store in which rows are staged, here or at a broker."""

    @property
    def root(self) -> Path:
        """The folder or the address, for errors."""

    @property
    def store_id(self) -> str:
        """The uuid of the store."""

    def queues_of(self, topic: str) -> int:
        """Return the write queues of a topic; publishing creates the topic if it is missing."""

    def create(self, batch: SinkBatch, partition: int, attempt: int) -> tuple[str, StagedOutput]:
        """Create a file; return its name and its writer."""

    def completed(self, name: str) -> None:
        """Restart the file's age."""

    def remove(self, name: str) -> None:
        """Delete a file that will not be published."""


class StoreStaging:
    """Stages rows in an open store."""

    def __init__(self, engine: Engine, area: StagingArea) -> None:
        self._engine, self._area, self.root = engine, area, area.root
        self.create, self.remove = area.create, area.remove

    @property
    def store_id(self) -> str:
        return self._engine.identity.store_id

    def completed(self, name: str) -> None:
        self._area.set_time(name, self._engine.clock())

    def queues_of(self, topic: str) -> int:
        check_topic_name(topic)
        topics, config = self._engine.topics, self._engine.config
        known = topics.all().get(topic)
        if known is None:
            if not config.auto_create_topics:
                topics.get(topic)
            return config.default_queues
        if not known.writable:
            raise MessageError(f"topic {topic!r} is not writable.", code="TOPIC_NOT_WRITABLE")
        return known.write_queues


@translating_methods
class Stager:
    """Stages the rows of one task. Leaving the `with` block without `finish` deletes the file.

    Nothing is flushed: after a crash the query stages its rows again. Example::

        with store.sink.stage(batch, partition=0, attempt=0) as stager:
            stager.append(rows, topic="t")
            staged = stager.finish()
    """

    def __init__(
        self, place: StagingPlace, encoder: MessageEncoder, batch: SinkBatch, task: tuple[int, int]
    ) -> None:
        """`task` is the partition and the attempt. The first rows create the file."""
        self._place, self._encoder = place, encoder
        self._batch, self._task = batch, task
        self._routes: dict[str, int] = {}
        self._name = ""
        self._file: StagedOutput | None = None
        self._rows = self._bytes = self._left_out = 0
        self._content = ContentSum()

    def __enter__(self) -> "Stager":
        return self

    def __exit__(self, *exception: object) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._place.remove(self._name)

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

        The columns and parameters equal those of `Store.append_batch`. Raises SchemaError,
        MessageError with the row number, TopicNotFoundError, and StoreUnavailableError
        (WRITE_FAILED), after which nothing more can be staged.
        """
        columns = check_send_batch(batch, self._encoder.max_message_bytes)
        if not len(columns):
            return 0
        if first_queue is not None:
            check_whole("first_queue", first_queue)
        start = random.randrange(1024) if first_queue is None else first_queue
        topics = batch.column("topic") if topic is None and "topic" in batch.schema.names else None
        content, columns = content_sum(columns, topics)
        encoded = [*self._encoder.encode_rows(batch, columns, topic, start, self._route)]
        with failing_whole(self._place.root):
            for part in encoded:
                if self._file is None:
                    self._name, self._file = self._place.create(self._batch, *self._task)
                self._file.add(part)
                self._bytes += part.data.size
        self._content = self._content.plus(content)
        self._rows += len(columns)
        return len(columns)

    def leave_out(self, rows: int) -> None:
        """Count rows that the task does not write."""
        self._left_out += rows

    def _route(self, topic: str) -> AppendRoute:
        """Return the queues of a topic, which are the same for all rows of the task."""
        if topic not in self._routes:
            self._routes[topic] = self._place.queues_of(topic)
        return AppendRoute(topic, self._routes[topic])

    def finish(self) -> Staged:
        """Close the file, if any, and return the argument for `Sink.publish`."""
        length = checksum = 0
        if self._file is not None:
            with failing_whole(self._place.root):
                length, checksum = self._file.finish()
                self._place.completed(self._name)
            self._file = None
        return Staged(
            name=self._name,
            rows=self._rows,
            bytes=self._bytes,
            file_bytes=length,
            checksum=checksum,
            content=self._content,
            store=self._place.store_id,
            topics=dict(self._routes),
            left_out=self._left_out,
        )


def staged_name(batch: SinkBatch, partition: int, attempt: int) -> str:
    """Return a new name for the file of a task: its query's folder and the file name."""
    return f"{batch.key}/{batch.batch:020d}-{partition:05d}-{attempt}-{uuid.uuid4().hex}"


def check_staged_name(name: str) -> None:
    """Raise SinkError (STAGED_BROKEN) unless `staged_name` could have returned this name."""
    if not _NAME.fullmatch(name):
        raise SinkError(f"{name!r} is not the name of a staged file.", code="STAGED_BROKEN")


def _statuses(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in listed(folder):
        with suppress(FileNotFoundError):  # Published or deleted in the meantime.
            yield path, path.stat()


def _sum(files: Sequence[tuple[Path, int]]) -> Leftovers:
    return Leftovers(len(files), sum(size for _, size in files))


def _batch_of(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _time_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
