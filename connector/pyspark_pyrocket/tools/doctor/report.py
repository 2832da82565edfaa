"""Findings: what was checked, the verdict and the remedy; as a table and as JSON."""

import json
from dataclasses import asdict, dataclass
from enum import Enum

import click
from pyrocket.tools.cli.frame import print_table


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
    click.echo(json.dumps({"ok": healthy, "checks": [*map(asdict, checks)]}, indent=2))


def show_table(checks: list[Check]) -> None:
    """Print a table: verdict, check, what was found and the remedy."""
    # Importing rich takes a second, which JSON does not need.
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for check in checks:
        text = Text(check.found)
        if check.remedy:
            text.append(f"\n{check.remedy}", style="bold")
        verdict = Text(check.verdict.value, style=_COLOURS[check.verdict])
        table.add_row(verdict, Text(check.name), text)
    print_table(table)
