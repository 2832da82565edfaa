"""Makes a consistent copy of a store in use; only the files that still grow are copied.

Full files are hard-linked: only a recovery may change such a file, and it first replaces the file
by a copy (`FileQueue.write`). Files that grow are copied up to one log offset, the bound. The
bound, the small files and the links are taken in one short exclusive section. The data that is
copied later cannot change unless topics or files are created or deleted; then the snapshot is
retried.

The copy is in the state of a clean shutdown: no `abort`, zeros after the log, complete queues. It
has the same store id, so that a query's checkpoint can be used with it, and starts a new epoch, so
that a checkpoint with later offsets is detected (LOG_TRUNCATED). Only full files of the key index
are included; the next writer builds the rest.

The copy has a name that begins with a dot until it is complete, so that a partial copy is never
mistaken for a complete one.
"""

import os
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pyrocket.disk import io
from pyrocket.disk.copying import Copies, SourceChangedError, translating_copy_errors
from pyrocket.disk.file_checks import check_files
from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.history import torn_batch
from pyrocket.engine.reader import Reader, StoreFiles
from pyrocket.engine.writer_session import section_beside_broker
from pyrocket.errors import (
    REBUILD_QUEUES,
    VERIFY_FIRST,
    InvalidInputError,
    PyrocketError,
    StoreDamagedError,
    StoreUnavailableError,
)
from pyrocket.formats.checkpoint import Checkpoint, encode_checkpoint
from pyrocket.formats.index_file import Geometry
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.missing_files import RESTORE_FROM_BACKUP, check_queues_end
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.service_cursors import save_cursors, save_transaction_cursors

_Section = Callable[[], AbstractContextManager[None]]
"""Returns a context manager that holds the write lock."""

CopyProgress = Callable[[int, int, str], None]
"""Called with bytes done, total bytes, and the file that was copied."""

_ATTEMPTS = 5


@dataclass(frozen=True)
class SnapshotReport:
    """The result of a snapshot. `unlinkable` is the reason why full files were copied, or ""."""

    path: Path
    log_end: int
    linked_files: int
    copied_files: int
    copied_bytes: int
    unlinkable: str


def take_snapshot(
    layout: Layout,
    reader: Reader,
    target: Path,
    section: _Section | None = None,
    progress: CopyProgress | None = None,
) -> SnapshotReport:
    """Copy the store to `target`, which must be missing or empty. `section` is held briefly.

    Raises InvalidInputError, StoreUnavailableError, and StoreDamagedError if a file is missing or
    has a wrong length. On an error, nothing is left at `target`.
    """
    with translating_copy_errors(layout.root, target):
        _check_target(layout, target)
        io.make_directory(target.parent)
    hold = section or section_beside_broker(layout) or nullcontext
    disturbed: Exception | None = None
    for _ in range(_ATTEMPTS):
        draft = target.parent / f".{target.name}.{uuid.uuid4().hex}"
        try:
            with translating_copy_errors(layout.root, target):
                copy = _Snapshot(layout, reader, Layout(draft), target, progress)
                report = copy.take(hold)
                io.rename(draft, target)
                io.sync_directory(target.parent)
        except SourceChangedError as error:
            disturbed = error
            continue
        finally:
            with suppress(OSError, PyrocketError):
                io.remove_tree(draft)
        return replace(report, path=target)
    raise StoreUnavailableError(
        f"topics or files of {layout.root} were created or deleted during every attempt.",
        remedy="Try again when the store is less busy.",
        code="SNAPSHOT_DISTURBED",
    ) from disturbed


def _check_target(layout: Layout, target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInputError(
            f"{target} exists and is not empty.",
            remedy="Use a new or an empty directory.",
            code="SNAPSHOT_TARGET",
        )
    if layout.root.resolve() in (target.resolve(), *target.resolve().parents):
        raise InvalidInputError(
            f"{target} is inside the store itself.",
            remedy="Use a directory outside the store.",
            code="SNAPSHOT_TARGET",
        )


class _Snapshot:
    """One attempt at a snapshot."""

    def __init__(
        self,
        layout: Layout,
        reader: Reader,
        draft: Layout,
        target: Path,
        progress: CopyProgress | None,
    ) -> None:
        self._layout, self._reader, self._draft, self._target = layout, reader, draft, target
        config = reader.identity.config
        self._files = StoreFiles(layout, config)
        self._log, self._queues = self._files.log, self._files.queues
        self._keys = KeyIndex(layout, Geometry(config.index_slots, config.index_items))
        self._copies = Copies(progress=self._report) if progress else Copies()
        self._progress, self._done = progress, 0
        self._total = _size_of(layout) if progress else 0
        self._last = (0, 0)
        self._cursors: dict[int, int] = {}

    def take(self, section: _Section) -> SnapshotReport:
        """Make the copy. Raises SourceChangedError if it must be retried, and OSError."""
        draft, copies = self._draft, self._copies
        try:
            for folder in (draft.commit_log, draft.consume_queues, draft.own):
                io.make_directory(folder)
            # Without `translating_copy_errors`, the exclusive section would report an error as a
            # failed write to the source.
            with section(), translating_copy_errors(self._layout.root, self._target):
                # The cursors are read before the bound, so that the snapshot contains all
                # deliveries up to the cursors.
                self._cursors = self._reader.cursors()
                bound = self._reader.bound()
                if (torn := torn_batch(self._log, self._queues, bound)) is not None:
                    bound = torn
                structure = self._reader.position().structure
                self._copy_small_files()
                tail = self._link_log(bound)
                index_timestamp = self._link_keys(bound)
            if tail is not None:
                name, stop = file_name(tail), None if bound == WHOLE_LOG else bound - tail
                copies.copy(self._layout.commit_log / name, draft.commit_log / name, stop)
            ends = {key: self._copy_queue(*key, bound) for key in self._queues.on_disk()}
            self._finish(bound, index_timestamp, ends)
            if bound != WHOLE_LOG and self._reader.position().structure != structure:
                raise SourceChangedError
        finally:
            self._files.close()
        end = sum(self._last) if bound == WHOLE_LOG else bound
        counts = copies.linked_files, copies.copied_files, copies.copied_bytes
        return SnapshotReport(draft.root, end, *counts, copies.unlinkable)

    def _report(self, more: int, file: Path) -> None:
        self._done += more
        if self._progress is not None:
            total = max(self._done, self._total)  # The store may have grown.
            self._progress(self._done, total, str(file.relative_to(self._layout.root)))

    def _copy_small_files(self) -> None:
        for source in (self._layout.identity, *self._layout.small_files):
            if source.is_file():
                target = self._draft.root / source.relative_to(self._layout.root)
                io.make_directory(target.parent)
                self._copies.copy(source, target)

    def _link_log(self, bound: int) -> int | None:
        """Link the full log files; return the start of the last file, None if there is none."""
        self._check_log(bound)
        starts = self._log.run.starts()
        last = self._log.run.start_of(bound) if bound != WHOLE_LOG else starts[-1] if starts else 0
        for start in starts:
            if start < last:
                name = file_name(start)
                self._copies.link(self._layout.commit_log / name, self._draft.commit_log / name)
        if last in starts:
            return last
        if last < bound != WHOLE_LOG:  # The file was deleted after the bound was read.
            raise SourceChangedError
        return None

    def _check_log(self, bound: int) -> None:
        """Raise StoreDamagedError if a log file is missing: the copy would hide the loss."""
        log, starts = self._log.run, self._log.run.starts()
        self._check_files(log, VERIFY_FIRST, bound, None if bound == WHOLE_LOG else bound)
        if bound == WHOLE_LOG and not self._is_torn(bound):
            end = starts[-1] + log.file_bytes if starts else 0
            check_queues_end(log, self._queues, end, RESTORE_FROM_BACKUP)

    def _check_files(self, run: FileQueue, remedy: str, bound: int, end: int | None = None) -> None:
        check_files(run.ignoring_empty_tail() if self._is_torn(bound) else run, remedy, end=end)

    def _is_torn(self, bound: int) -> bool:
        """Whether a broker is running or was killed: the ends of log and queues are unknown.

        If so, there may be empty files at the end, which recovery deletes.
        """
        return bound == WHOLE_LOG and self._layout.abort.exists()

    def _link_keys(self, bound: int) -> int:
        """Link the full index files; return the checkpoint's index timestamp."""
        stored = 0
        for name in self._keys.names():
            try:
                header = self._keys.header(name)
            except StoreDamagedError:
                break
            if not self._keys.is_full(header) or header.end_offset >= bound:
                break
            io.make_directory(self._draft.index)
            self._copies.link(self._keys.path(name), self._draft.index / name)
            stored = header.end_timestamp
        return stored

    def _copy_queue(self, topic: str, queue_id: int, bound: int) -> int:
        """Copy the entries of records before `bound`; return the end offset of the queue."""
        queue = self._queues.get(topic, queue_id)
        self._check_files(queue.run, REBUILD_QUEUES, bound)
        end = queue.max_offset(bound)
        source, target = queue.run.folder, self._draft.consume_queue(topic, queue_id)
        for start in queue.run.starts():
            stop = end * ENTRY_BYTES - start
            if stop <= 0:
                break
            io.make_directory(target)
            name = file_name(start)
            if stop >= queue.run.file_bytes:
                self._copies.link(source / name, target / name)
            else:
                self._copies.copy(source / name, target / name, stop)
        for entry in queue.entries(max(end - 1, 0), end):
            self._last = max(self._last, (int(entry["physical_offset"]), int(entry["size"])))
        return end

    def _finish(self, bound: int, index_timestamp: int, ends: dict[tuple[str, int], int]) -> None:
        """Write the files of a clean shutdown; without a bound, copy the store's files."""
        draft = self._draft
        if bound == WHOLE_LOG:
            for source in (self._layout.abort, self._layout.checkpoint):
                if source.exists():
                    self._copies.copy(source, draft.root / source.name)
        else:
            stored = self._last_stored(bound)
            content = encode_checkpoint(Checkpoint(stored, stored, index_timestamp))
            io.replace_file(draft.checkpoint, content, draft.scratch)
            Epochs(draft).begin(ends)
            save_cursors(draft, self._cursors)
            save_transaction_cursors(draft, self._cursors)
        self._copies.sync_links()
        for folder, _, _ in os.walk(draft.root, topdown=False):
            io.sync_directory(Path(folder))

    def _last_stored(self, bound: int) -> int:
        """Return the store time of the last queue entry, or of the last file's start if later.

        The last message may have no queue entry because its topic was deleted. The message of the
        last entry may have expired.
        """
        run = self._log.run
        files = [start for start in run.starts() if start < bound]
        places = [at for at in (self._last[0], *files[-1:]) if run.start_of(at) in files]
        return max(map(self._log.stored_at, places), default=0)


def _size_of(layout: Layout) -> int:
    """Return the size of all log and queue files in bytes."""
    files = (*layout.commit_log.glob("*"), *layout.consume_queues.glob("*/*/*"))
    return sum(file.stat().st_size for file in files)
