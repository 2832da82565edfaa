"""`pyrocket doctor`: checks whether this machine can run pyrocket under Spark, with remedies.

checks      Python, Spark's workers, pyspark, Java, free space
discovery   whether Spark finds `format("pyrocket")`; probe runs in the workers' Python
report      findings, printed as a table or as JSON
"""

import os

import click

from pyspark_pyrocket.tools.doctor.checks import (
    check_java,
    check_pyspark,
    check_python,
    check_space,
    check_worker,
    planner_python,
    worker_python,
)
from pyspark_pyrocket.tools.doctor.discovery import check_discovery
from pyspark_pyrocket.tools.doctor.report import Check, Verdict, show_json, show_table


@click.command()
@click.argument("path", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def doctor(path: str | None, as_json: bool) -> None:
    """Check this machine: Python, Spark, Java, discovery, and space at PATH.

    PATH defaults to PYROCKET_STORE. Exits with 1 if a check fails.
    """
    checks = examine(path or os.environ.get("PYROCKET_STORE"))
    (show_json if as_json else show_table)(checks)
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise SystemExit(1)


def examine(store: str | None) -> list[Check]:
    """Return the findings of every check; none of them raises."""
    worker = worker_python()
    return [
        check_python(),
        check_worker(worker),
        check_pyspark(),
        check_java(),
        *check_discovery(planner_python()),
        check_space(store),
    ]
