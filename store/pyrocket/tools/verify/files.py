"""Names and lengths of the files of the log and the queues, and of what lies among them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import Layout, file_name, listed, parse_file_name
from pyrocket.errors import StoreDamagedError
from pyrocket.tools.verify.finding import Findings, Severity, repair, restore

_AWAY = repair("moves it to pyrocket/quarantine; RocketMQ refuses such a folder.")
_BY_HAND = "Move it away while the store is closed everywhere; it is made anew."
_REBUILD = repair("rebuilds the queue from the log.")


class AnyRun(FileQueue):
    """A run of files that ignores what is foreign, and ends where a file does."""

    def starts(self) -> list[int]:
        """Return the start offsets of the files that can be of this run, ascending."""
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in entries if entry.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        parsed = (parse_file_name(name) for name in names)
        return sorted(start for start in parsed if start is not None and fits(self, start))

    def window(self, offset: int, length: int) -> tuple[pa.Buffer, int]:
        """Map as much as there is. Raises FileNotFoundError where there is nothing."""
        start = self.start_of(offset)
        size = os.stat(self.folder / file_name(start)).st_size
        if size <= offset - start:
            raise FileNotFoundError(f"{self.folder / file_name(start)} ends before {offset}")
        return super().window(offset, min(length, size - (offset - start)))

    def _checked(self, start: int) -> tuple[int, int]:
        try:
            return super()._checked(start)
        except StoreDamagedError as error:  # What is no file is not there.
            raise FileNotFoundError(error.message) from error


def fits(run: FileQueue, start: int) -> bool:
    """Whether a file of the run may begin at `start`."""
    return start % run.file_bytes == 0


def check_places(layout: Layout, findings: Findings) -> None:
    """Look for folders in the place of files that can be made anew, and the other way round."""
    for path in _files(layout):
        if path.is_dir():
            _report_kind(layout, path, "a folder; a store has a file there.", findings)
    for path in (layout.consume_queues, layout.index, layout.scratch, layout.timers):
        if path.exists() and not path.is_dir():
            _report_kind(layout, path, "a file; a store has a folder there.", findings)
    if layout.commit_log.exists() and not layout.commit_log.is_dir():
        what = "it is a file; a store has the folder of its log there."
        fix = restore("the folder")
        findings.add("LOG_FILE_MISSING", Severity.ERROR, layout.commit_log.name, what, fix)


def _files(layout: Layout) -> tuple[Path, ...]:
    locks = layout.lock, layout.mutex, layout.turnstile, layout.flush_lock
    times = layout.abort, layout.checkpoint, layout.own_checkpoint, layout.timer_check
    return *locks, *times, layout.state, layout.pending_keys, layout.handed, layout.clock


def _report_kind(layout: Layout, path: Path, what: str, findings: Findings) -> None:
    needed = path in (layout.lock, layout.mutex, layout.turnstile, layout.scratch, layout.clock)
    fix = _BY_HAND if needed else _AWAY
    file = str(path.relative_to(layout.root))
    findings.add("FOREIGN_FILE", Severity.ERROR, file, f"it is {what}", fix)


def check_log_files(layout: Layout, run: AnyRun, findings: Findings) -> None:
    """Look at the log's folder."""
    _check_names(layout, run, findings)
    starts = run.starts()
    for at, start in enumerate(starts):
        path = run.folder / file_name(start)
        file, size = str(path.relative_to(layout.root)), _size(path, run.file_bytes)
        if at and start != starts[at - 1] + run.file_bytes:
            what = f"the log has no file between {file_name(starts[at - 1])} and this one."
            findings.add("LOG_FILE_MISSING", Severity.ERROR, file, what, restore("what is missing"))
        if size != run.file_bytes:
            _report_length(findings, file, size, run.file_bytes, is_last=start == starts[-1])


def _report_length(
    findings: Findings, file: str, size: int, expected: int, *, is_last: bool
) -> None:
    what = f"it has {size} bytes, not {expected}."
    fix = restore(file)
    if is_last and size < expected:
        fix = repair("gives it its length; what is behind its last whole record goes.")
    findings.add("LOG_FILE_LENGTH", Severity.ERROR, file, what, fix, size)


def check_queue_files(layout: Layout, file_bytes: int, findings: Findings) -> None:
    """Look at the queues' folders."""
    for folder in _queue_folders(layout, findings):
        run = AnyRun(folder, file_bytes, layout.scratch, writable=False)
        _check_names(layout, run, findings)
        starts = run.starts()
        for at, start in enumerate(starts):
            path = folder / file_name(start)
            file, size = str(path.relative_to(layout.root)), _size(path, file_bytes)
            if at and start != starts[at - 1] + file_bytes:
                what = f"the queue has no file between {file_name(starts[at - 1])} and this one."
                findings.add("QUEUE_FILE_MISSING", Severity.ERROR, file, what, _REBUILD)
            if size != file_bytes:
                what = f"it has {size} bytes, not {file_bytes}."
                findings.add("QUEUE_FILE_LENGTH", Severity.ERROR, file, what, _REBUILD, size)


def _queue_folders(layout: Layout, findings: Findings) -> Iterator[Path]:
    """Yield the folders of queues; what else lies there is a finding."""
    for topic in sorted(listed(layout.consume_queues)):
        if not topic.is_dir():
            _report_foreign(layout, topic, findings)
            continue
        for queue in sorted(listed(topic)):
            if queue.is_dir() and queue.name.isascii() and queue.name.isdigit():
                yield queue
            else:
                _report_foreign(layout, queue, findings)


def _check_names(layout: Layout, run: AnyRun, findings: Findings) -> None:
    for path in sorted(listed(run.folder)):
        start = parse_file_name(path.name)
        if start is None or start % run.file_bytes or not path.is_file():
            _report_foreign(layout, path, findings)


def _size(path: Path, expected: int) -> int:
    """Return a file's length; the expected one where the file is cleaned away meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return expected


def _report_foreign(layout: Layout, path: Path, findings: Findings) -> None:
    if not os.path.lexists(path):
        return  # It was cleaned away, or its topic deleted, since it was listed.
    file = str(path.relative_to(layout.root))
    what = "this is no file of a store."
    findings.add("FOREIGN_FILE", Severity.ERROR, file, what, _AWAY)
