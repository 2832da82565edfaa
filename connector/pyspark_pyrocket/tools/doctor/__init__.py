"""`pyrocket doctor`: tells whether this machine can run pyrocket under Spark, and what to do.

check           one finding: a verdict, what was found, the way out
interpreter     Python, Spark's workers, pyspark, Java
discovery       whether Spark finds `format("pyrocket")`
space           free space where the store is
show            findings for people and for machines
"""

import os

import click

from pyspark_pyrocket.tools.doctor.check import Check, Verdict
from pyspark_pyrocket.tools.doctor.discovery import check_discovery
from pyspark_pyrocket.tools.doctor.interpreter import (
    check_java,
    check_pyspark,
    check_python,
    check_worker,
    planner_python,
    worker_python,
)
from pyspark_pyrocket.tools.doctor.show import show_json, show_table
from pyspark_pyrocket.tools.doctor.space import check_space


@click.command()
@click.argument("path", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def doctor(path: str | None, as_json: bool) -> None:
    """Check this machine: Python, Spark, Java, discovery, and space at PATH.

    Without PATH the store is the one of PYROCKET_STORE. Exits with 1 if a check fails.
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
