"""Findings: what was checked, the verdict and the remedy; as a table and as JSON."""

from dataclasses import asdict, dataclass
from enum import Enum

from pyrocket.tools.cli.frame import show_json as show_document
from pyrocket.tools.cli.frame import show_verdicts


class Verdict(str, Enum):
    """The severity of a finding. FAIL means that something will not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """The name of a check, its verdict, what was found, and the remedy unless the verdict is OK."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def ok(name: str, found: str) -> Check:
    """Return a finding that needs no action."""
    return Check(name, Verdict.OK, found)


def warn(name: str, found: str, remedy: str) -> Check:
    """Return a finding about something that works, but not for long or not as expected."""
    return Check(name, Verdict.WARN, found, remedy)


def fail(name: str, found: str, remedy: str) -> Check:
    """Return a finding about something that has to be fixed."""
    return Check(name, Verdict.FAIL, found, remedy)


_COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def show_json(checks: list[Check]) -> None:
    """Print one object: whether no check failed, and all checks."""
    healthy = all(check.verdict is not Verdict.FAIL for check in checks)
    show_document({"ok": healthy, "checks": [*map(asdict, checks)]})


def show_table(checks: list[Check]) -> None:
    """Print a table: verdict, check, what was found and the remedy."""
    show_verdicts(
        (check.verdict.value, _COLOURS[check.verdict], check.name, check.found, check.remedy)
        for check in checks
    )
