"""Checks names and lengths of the files of the log and the queues, and finds foreign files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pyrocket.disk.file_checks import missing_files
from pyrocket.disk.file_queue import FileQueue, file_name, parse_file_name
from pyrocket.disk.layout import Layout, listed
from pyrocket.errors import StoreDamagedError
from pyrocket.tools.verify.report import Findings, Severity, repair, restore

_QUARANTINE = repair("moves it to pyrocket/quarantine; RocketMQ rejects such a folder.")
_BY_HAND = "Move it away while the store is closed everywhere; it is created again."
_REBUILD = repair("rebuilds the queue from the log.")
_MISSING = "it is missing, but a later file exists."
NOT_OF_A_STORE = "this is not a file of a store."


class TolerantFileQueue(FileQueue):
    """A file queue that ignores foreign files and reads a short file up to its end."""

    def starts(self) -> list[int]:
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in entries if entry.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        starts = (parse_file_name(name) for name in names)
        return sorted(
            start for start in starts if start is not None and not start % self.file_bytes
        )

    def window(self, offset: int, length: int) -> tuple[pa.Buffer, int]:
        """Map at most `length` bytes. Raises FileNotFoundError if the file ends before `offset`."""
        start = self.start_of(offset)
        size = os.stat(self.folder / file_name(start)).st_size
        if size <= offset - start:
            raise FileNotFoundError(f"{self.folder / file_name(start)} ends before {offset}")
        return super().window(offset, min(length, size - (offset - start)))

    def _checked(self, start: int) -> tuple[int, int]:
        try:
            return super()._checked(start)
        except StoreDamagedError as error:  # Treat a link or a folder as missing.
            raise FileNotFoundError(error.message) from error


def check_kinds(layout: Layout, findings: Findings) -> None:
    """Report folders in place of files, and files in place of folders."""
    for path in _files(layout):
        if path.is_dir():
            _report_kind(layout, path, "a folder; a store has a file there.", findings)
    for path in (layout.consume_queues, layout.index, layout.scratch, layout.timers):
        if path.exists() and not path.is_dir():
            _report_kind(layout, path, "a file; a store has a folder there.", findings)
    log = layout.commit_log
    if log.exists() and not log.is_dir():
        what = "it is a file; a store has the folder of its log there."
        findings.add("LOG_FILE_MISSING", Severity.ERROR, log, what, restore("the folder"))


def _files(layout: Layout) -> tuple[Path, ...]:
    locks = layout.lock, layout.mutex, layout.turnstile, layout.flush_lock
    times = layout.abort, layout.checkpoint, layout.own_checkpoint, layout.timer_check
    return *locks, *times, layout.state, layout.pending_keys, layout.handed, layout.clock


def _report_kind(layout: Layout, path: Path, what: str, findings: Findings) -> None:
    # The repair itself uses these files, so it cannot move them.
    needed = path in (layout.lock, layout.mutex, layout.turnstile, layout.scratch, layout.clock)
    fix = _BY_HAND if needed else _QUARANTINE
    findings.add("FOREIGN_FILE", Severity.ERROR, path, f"it is {what}", fix)


def check_log_files(log: TolerantFileQueue, findings: Findings) -> None:
    _check_names(log, findings)
    for start in missing_files(log):
        file = f"commitlog/{file_name(start)}"
        findings.add("LOG_FILE_MISSING", Severity.ERROR, file, _MISSING, restore(file))
    starts = log.starts()
    for start in starts:
        path = log.folder / file_name(start)
        size = _size(path, log.file_bytes)
        if size != log.file_bytes:
            fix = restore(str(path.relative_to(findings.root)))
            if start == starts[-1] and size < log.file_bytes:
                fix = repair("extends it and clears everything after its last complete record.")
            what = f"it has {size} bytes, not {log.file_bytes}."
            findings.add("LOG_FILE_LENGTH", Severity.ERROR, path, what, fix, size)


def check_queue_files(layout: Layout, file_bytes: int, findings: Findings) -> None:
    for folder in _queue_folders(layout, findings):
        queue = TolerantFileQueue(folder, file_bytes, layout.scratch, writable=False)
        _check_names(queue, findings)
        for start in missing_files(queue):
            path = folder / file_name(start)
            findings.add("QUEUE_FILE_MISSING", Severity.ERROR, path, _MISSING, _REBUILD)
        for start in queue.starts():
            path = folder / file_name(start)
            size = _size(path, file_bytes)
            if size != file_bytes:
                what = f"it has {size} bytes, not {file_bytes}."
                findings.add("QUEUE_FILE_LENGTH", Severity.ERROR, path, what, _REBUILD, size)


def _queue_folders(layout: Layout, findings: Findings) -> Iterator[Path]:
    """Yield the folders of queues; report anything else as foreign."""
    for topic in sorted(listed(layout.consume_queues)):
        if not topic.is_dir():
            _report_foreign(topic, findings)
            continue
        for queue in sorted(listed(topic)):
            if queue.is_dir() and queue.name.isascii() and queue.name.isdigit():
                yield queue
            else:
                _report_foreign(queue, findings)


def _check_names(queue: FileQueue, findings: Findings) -> None:
    for path in sorted(listed(queue.folder)):
        start = parse_file_name(path.name)
        if start is None or start % queue.file_bytes or not path.is_file():
            _report_foreign(path, findings)


def _size(path: Path, expected: int) -> int:
    """Return a file's length, or `expected` if the file was deleted meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return expected


def _report_foreign(path: Path, findings: Findings) -> None:
    if os.path.lexists(path):  # Otherwise it was deleted after it was listed.
        findings.add("FOREIGN_FILE", Severity.ERROR, path, NOT_OF_A_STORE, _QUARANTINE)
