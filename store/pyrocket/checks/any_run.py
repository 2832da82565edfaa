"""Reading folders as they are: files may be missing, cut short or foreign."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from pyrocket.disk.file_run import FileRun
from pyrocket.disk.layout import Layout, file_name, parse_file_name


class AnyRun(FileRun):
    """A run of files that ignores what is foreign, and ends where a file does."""

    def starts(self) -> list[int]:
        """Return the start offsets of the files that can be of this run, ascending."""
        try:
            names = os.listdir(self.folder)
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


def fits(run: FileRun, start: int) -> bool:
    """Whether a file of the run may begin at `start`."""
    return start % run.file_bytes == 0


def usual_sizes(layout: Layout) -> dict[str, int]:
    """Return the sizes that most files have: some may have been cut."""
    sizes = {}
    if found := _usual(layout.commit_log.glob("*")):
        sizes["log_file_bytes"] = found
    if found := _usual(layout.consume_queues.glob("*/*/*")) // 20:
        sizes["queue_file_entries"] = found
    return sizes


def _usual(paths: Iterable[Path]) -> int:
    named = (path for path in paths if parse_file_name(path.name) is not None)
    counts = Counter(path.stat().st_size for path in named if path.is_file())
    counts.pop(0, None)
    return counts.most_common(1)[0][0] if counts else 0
