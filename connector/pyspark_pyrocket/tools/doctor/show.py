"""Findings as a table for people and as JSON for machines."""

import json

import click
from pyrocket.tools.cli.frame import print_table

from pyspark_pyrocket.tools.doctor.check import Check, Verdict

_COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def show_json(checks: list[Check]) -> None:
    """Print one object: whether nothing failed, and every check."""
    found = [
        {
            "name": check.name,
            "verdict": check.verdict.value,
            "found": check.found,
            "remedy": check.remedy,
        }
        for check in checks
    ]
    healthy = all(check.verdict is not Verdict.FAIL for check in checks)
    click.echo(json.dumps({"ok": healthy, "checks": found}, indent=2))


def show_table(checks: list[Check]) -> None:
    """Print a table: verdict, what was looked at, what was found and the way out."""
    # A second's worth of imports that JSON does not need.
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for check in checks:
        found = Text(check.found)
        if check.remedy:
            found.append(f"\n{check.remedy}", style="bold")
        verdict = Text(check.verdict.value, style=_COLOURS[check.verdict])
        table.add_row(verdict, Text(check.name), found)
    print_table(table)
