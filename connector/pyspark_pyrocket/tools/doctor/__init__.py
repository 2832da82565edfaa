"""`pyrocket doctor`: checks whether this machine can run pyrocket under Spark, with remedies.

checks      Python, Spark's workers, pyspark, Java, free space
endpoint    checks each step of a call to a broker
discovery   whether Spark finds `format("pyrocket")`; probe runs in the workers' Python
report      findings, printed as a table or as JSON
"""

import os
from typing import BinaryIO

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
from pyspark_pyrocket.tools.doctor.report import Check, Verdict, fail, show_json, show_table


@click.command()
@click.argument("path", required=False)
@click.option("--endpoint", metavar="HOST:PORT", help="Check a broker instead, step by step.")
@click.option("--tls", is_flag=True, help="Connect to the broker with TLS.")
@click.option("--ca", type=click.File("rb"), help="PEM file with trusted CA certificates.")
@click.option("--access-key", envvar="PYROCKET_ACCESS_KEY", default="", help="The broker's user.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def doctor(
    path: str | None,
    endpoint: str | None,
    tls: bool,
    ca: BinaryIO | None,
    access_key: str,
    as_json: bool,
) -> None:
    """Check this machine: Python, Spark, Java, discovery, and space at PATH.

    PATH defaults to PYROCKET_STORE. The secret of a broker's user is read from
    PYROCKET_SECRET_KEY. Exits with 1 if a check fails.
    """
    if endpoint is not None:
        checks = _examine_endpoint(endpoint, tls, ca.read() if ca else None, access_key)
    else:
        checks = examine(path or os.environ.get("PYROCKET_STORE"))
    (show_json if as_json else show_table)(checks)
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise SystemExit(1)


def _examine_endpoint(address: str, tls: bool, ca: bytes | None, access_key: str) -> list[Check]:
    # Needs grpcio, which is not installed on machines that use no broker.
    try:
        from pyrocket import Credentials

        from pyspark_pyrocket.tools.doctor.endpoint import check_endpoint
    except ModuleNotFoundError as error:
        remedy = "Run: pip install '.[endpoint]' in the checkout of pyrocket."
        return [fail("endpoint", f"it needs {error.name}", remedy)]

    secret = os.environ.get("PYROCKET_SECRET_KEY", "")
    credentials = Credentials(tls=tls, ca=ca, access_key=access_key, secret_key=secret)
    return check_endpoint(address, credentials)


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
