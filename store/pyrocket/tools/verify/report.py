"""The result of a check: its findings, and statistics of the store."""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from pyrocket.log.salvage import DamagedRange
from pyrocket.values.admin import TopicConfig

REPAIR = "pyrocket repair"
KEPT_PER_CODE = 100
_NEEDS_NO_LOG = ("FOREIGN_FILE", "CONFIG_")


class Severity(str, Enum):
    """ERROR: data cannot be read. WARNING: readable, but needs a repair. NOTE: a normal state."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """`file` is relative to the store; `position` is a byte in it, or None for the entire file.

    `fix` is the remedy; it begins with "pyrocket repair" if a repair fixes the problem.
    """

    code: str
    severity: Severity
    file: str
    position: int | None
    what: str
    fix: str

    @property
    def where(self) -> str:
        return self.file if self.position is None else f"{self.file}:{self.position}"

    @property
    def repairable(self) -> bool:
        """Whether `pyrocket repair` fixes it."""
        return self.fix.startswith(REPAIR)


@dataclass
class Findings:
    """Collects findings: counts all, and stores the first `most` of each code."""

    root: Path
    most: int = KEPT_PER_CODE
    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        code: str,
        severity: Severity,
        file: Path | str,
        what: str,
        fix: str,
        position: int | None = None,
    ) -> None:
        """Add a finding about a file: an absolute path, or text relative to the store."""
        name = file if isinstance(file, str) else str(file.relative_to(self.root))
        self.counts[code] += 1
        if self.counts[code] <= self.most:
            self.kept.append(Finding(code, severity, name, position, what, fix))


def restore(file: str) -> str:
    """Return the remedy for bytes that cannot be recovered."""
    return f"Restore {file} from a backup; no repair can recover its messages."


def after(first: str, finding: Finding) -> Finding:
    """Return the finding with `first` as a step to take before the repair.

    Queues rebuilt from a log with missing files would lack the messages of those files, and a store
    without valid tables cannot be opened.
    """
    if not finding.repairable or finding.code.startswith(_NEEDS_NO_LOG):
        return finding
    return replace(finding, fix=f"{first}; then {finding.fix}")


def repair(does: str) -> str:
    """Return the remedy for a problem that `pyrocket repair` fixes; `does` describes the fix."""
    return f"{REPAIR} {does}"


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
        cut = (item.code == "LOG_FILE_LENGTH" and not item.repairable for item in self.findings)
        return "LOG_FILE_MISSING" in self.counts or any(cut)

    @property
    def is_unidentified(self) -> bool:
        """Whether `store.json`, which has the file sizes and delay levels, is unreliable."""
        broken = ("CONFIG_BROKEN", "pyrocket/store.json")
        return SIZES in self.counts or broken in {(item.code, item.file) for item in self.findings}

    @property
    def prerequisite(self) -> str:
        """The step required before a repair can read the log and open the store; "" if none is."""
        if self.lacks_files:
            return "Restore the missing files of the log"
        if self.is_unidentified:
            return "Correct pyrocket/store.json"
        return "Repair or restore the broken tables" if "CONFIG_BROKEN" in self.counts else ""
