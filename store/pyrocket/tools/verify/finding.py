"""One finding, and all of a check."""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum

REPAIR, RESTORE = "pyrocket repair", "restore"
KEPT_PER_CODE = 100
_NEEDS_NO_LOG = ("FOREIGN_FILE", "CONFIG_")


class Severity(str, Enum):
    """ERROR: something cannot be read. WARNING: it can, but should be mended. NOTE: fine."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """`file` is relative to the store, `position` a byte in it, or None for all of it.

    `fix` says what to do; it begins with "pyrocket repair" where that mends it.
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
    def mendable(self) -> bool:
        """Whether `pyrocket repair` does something about it."""
        return self.fix.startswith(REPAIR)


@dataclass
class Findings:
    """Collects findings; of those with one code the first `most` are kept, all are counted."""

    most: int = KEPT_PER_CODE
    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        code: str,
        severity: Severity,
        file: str,
        what: str,
        fix: str,
        position: int | None = None,
    ) -> None:
        """Add one."""
        self.counts[code] += 1
        if self.counts[code] <= self.most:
            self.kept.append(Finding(code, severity, file, position, what, fix))


def restore(file: str) -> str:
    """Return the way out where bytes are gone for good."""
    return f"Restore {file} from a backup; no repair can bring its messages back."


def after(first: str, finding: Finding) -> Finding:
    """Return it for a store in which something else has to be done first.

    Rebuilt from a log that lacks messages, queues would lack them, too; and without the tables no
    store can be opened.
    """
    if not finding.mendable or finding.code.startswith(_NEEDS_NO_LOG):
        return finding
    return replace(finding, fix=f"{first}; then {finding.fix}")


def repair(does: str) -> str:
    """Return the way out where `pyrocket repair` can do it."""
    return f"{REPAIR} {does}"
