"""A finding of a check, and the list of findings."""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

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
        """File and position."""
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
