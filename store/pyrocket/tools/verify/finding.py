"""One finding of a check, and the list of all."""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

REPAIR = "pyrocket repair"
KEPT_PER_CODE = 100
_NEEDS_NO_LOG = ("FOREIGN_FILE", "CONFIG_")


class Severity(str, Enum):
    """ERROR: data cannot be read. WARNING: it can be read, but a repair is needed. NOTE: normal."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """`file` is relative to the store, `position` a byte in it, or None for the whole file.

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
    """Collects findings. All are counted; the first `most` of each code are kept."""

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
    """Return the finding with `first` as the step before its repair.

    Queues that are rebuilt from a log with missing files would lack the same messages, and a store
    without its tables cannot be opened.
    """
    if not finding.repairable or finding.code.startswith(_NEEDS_NO_LOG):
        return finding
    return replace(finding, fix=f"{first}; then {finding.fix}")


def repair(does: str) -> str:
    """Return the remedy for what `pyrocket repair` can fix."""
    return f"{REPAIR} {does}"
