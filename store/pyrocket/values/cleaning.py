"""The report of a cleaning: the files that it deleted, and those that it kept."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class LogFile:
    """A log file, and the time in epoch ms at which the next file was started."""

    start: int
    bytes: int
    closed_ms: int


@dataclass(frozen=True)
class Removal:
    """A file to delete, and the reason."""

    file: LogFile
    reason: str


@dataclass(frozen=True)
class Kept:
    """A file that exceeds the limits, and a description of the records for which it is kept."""

    file: LogFile
    held_by: str


@dataclass(frozen=True)
class CleanReport:
    """The files that a cleaning deleted or, with `dry_run`, would delete.

    kept: files that exceed the limits but are still needed, in log order. staged_files,
    staged_bytes: files with rows that were staged for a sink but not published within a week.
    messages: the number of messages in the deleted log files, without those of services; only a
    manual cleaning counts them. disk_bytes: the log files that any retention deletes at once,
    because the disk is fuller than `force_ratio`; only `dry_run` computes them.
    """

    removals: tuple[Removal, ...] = ()
    queue_files: int = 0
    index_files: int = 0
    dry_run: bool = False
    log_start: int = field(default=0)
    staged_files: int = 0
    staged_bytes: int = 0
    kept: tuple[Kept, ...] = ()
    messages: int = 0
    disk_bytes: int = 0

    def then(self, later: "CleanReport") -> "CleanReport":
        """Return the sums of both reports; the other fields are those of the later report."""
        return replace(
            later,
            removals=self.removals + later.removals,
            queue_files=self.queue_files + later.queue_files,
            index_files=self.index_files + later.index_files,
        )

    @property
    def bytes(self) -> int:
        """Bytes of the deleted log files."""
        return sum(removal.file.bytes for removal in self.removals)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the log files that exceed the limits but are kept."""
        return sum(one.file.bytes for one in self.kept)
