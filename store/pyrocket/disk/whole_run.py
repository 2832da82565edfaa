"""A run of files as it is when last files that never got their length are taken for missing."""

from pyrocket.disk.file_queue import FileQueue


class WholeRun(FileQueue):
    """For looking only: says before `FileQueue.remove_empty_tail` what will be there after it."""

    def __init__(self, run: FileQueue) -> None:
        super().__init__(run.folder, run.file_bytes, run.folder, writable=False)

    def starts(self) -> list[int]:
        """Return the start offsets of the files up to the last that has a length, ascending."""
        starts = super().starts()
        while starts and not self._path(starts[-1]).stat().st_size:
            starts.pop()
        return starts
