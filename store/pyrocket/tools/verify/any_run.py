"""Reading folders as they are: files may be missing, cut short or foreign."""

import os

import pyarrow as pa

from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import file_name, parse_file_name
from pyrocket.errors import StoreDamagedError


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
