"""The result of a check: its findings, and statistics of the store."""

from dataclasses import dataclass
from pathlib import Path

from pyrocket.log.salvage import DamagedRange
from pyrocket.tools.verify.finding import Finding, Severity
from pyrocket.values.topics import TopicConfig

SIZES = "STORE_SIZES"
"""The code for a `store.json` that contradicts all files."""


@dataclass(frozen=True)
class Report:
    """The result of a check.

    findings: At most a fixed number of findings of each code.
    counts: The number of all findings by code.
    queues_in_log: Topic and queue id of the queues with messages in the log.
    missing_topics: The topics that are missing in the topic table.
    """

    path: Path
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    messages: int = 0
    entries: int = 0
    queues: int = 0
    log_start: int = 0
    log_end: int = 0
    last_stored_ms: int = 0
    damaged_ranges: tuple[DamagedRange, ...] = ()
    queues_in_log: frozenset[tuple[str, int]] = frozenset()
    missing_topics: tuple[TopicConfig, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all findings are notes."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def first_damage(self) -> DamagedRange | None:
        """The first damaged range of the log that is followed by messages."""
        inside = [damaged for damaged in self.damaged_ranges if damaged.start < self.log_end]
        return min(inside, key=lambda damaged: damaged.start, default=None)

    @property
    def lacks_files(self) -> bool:
        """Whether files of the log are missing or too short, so that no repair is possible."""
        cut = (one.code == "LOG_FILE_LENGTH" and not one.repairable for one in self.findings)
        return "LOG_FILE_MISSING" in self.counts or any(cut)

    @property
    def is_unidentified(self) -> bool:
        """Whether `store.json`, which has the file sizes and delay levels, is unreliable."""
        broken = ("CONFIG_BROKEN", "pyrocket/store.json")
        return SIZES in self.counts or broken in {(each.code, each.file) for each in self.findings}

    @property
    def prerequisite(self) -> str:
        """The step required before a repair can read the log and open the store; "" if none is."""
        if self.lacks_files:
            return "Restore the missing files of the log"
        if self.is_unidentified:
            return "Correct pyrocket/store.json"
        return "Repair or restore the broken tables" if "CONFIG_BROKEN" in self.counts else ""
