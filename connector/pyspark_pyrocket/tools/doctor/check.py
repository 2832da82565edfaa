"""One finding of the doctor."""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How bad a finding is: FAIL means that something will not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """What was looked at, the verdict, what was found, and the way out if it is not OK."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def ok(name: str, found: str) -> Check:
    """Return a finding that needs no action."""
    return Check(name, Verdict.OK, found)


def warn(name: str, found: str, remedy: str) -> Check:
    """Return a finding that works, but not for long or not as expected."""
    return Check(name, Verdict.WARN, found, remedy)


def fail(name: str, found: str, remedy: str) -> Check:
    """Return a finding that must be mended first."""
    return Check(name, Verdict.FAIL, found, remedy)
