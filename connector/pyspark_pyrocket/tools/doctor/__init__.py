"""`pyrocket doctor`: checks whether this machine can run pyrocket under Spark, with remedies.

checks      Python, Spark's workers, pyspark, Java, free space
endpoint    checks each step of a call to a broker
namesrv     checks each step of a query of a cluster of Apache RocketMQ
discovery   whether Spark finds `format("pyrocket")`; probe runs in the workers' Python
report      findings, printed as a table or as JSON
"""

from contextlib import closing

import click
from pyrocket.errors import PackageMissingError
from pyrocket.tools.cli.frame import FOUND, OK, exits_with_json
from pyrocket.tools.cli.place import GivenPlace, place_options

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
@click.argument("directory", metavar="[PATH]", required=False)
@place_options
@click.option("--topic", default="", help="With --namesrv: also read a message of this topic.")
@click.option("--group", default="", help="With --namesrv: the group that reads.")
@exits_with_json
def doctor(directory: str | None, place: GivenPlace, topic: str, group: str, as_json: bool) -> int:
    """Check this machine: Python, Spark, Java, discovery, and space at PATH.

    With --endpoint, or PYROCKET_ENDPOINT and without PATH, check each step of a call to that broker
    instead; with --namesrv each step of a query of a cluster of Apache RocketMQ. The options, the
    environment and the settings file are those of all commands. Exits with 1 if a check fails.
    """
    location = None if directory else place.find()
    if location and (location.endpoint or location.namesrv):
        checks = _examine_servers(location.endpoint, place, topic, group)
    else:
        checks = examine(directory or (location and location.path) or None)
    (show_json if as_json else show_table)(checks)
    return FOUND if any(check.verdict is Verdict.FAIL for check in checks) else OK


def _examine_servers(addresses: str, place: GivenPlace, topic: str, group: str) -> list[Check]:
    # Needs grpcio, which is not installed on machines that use no broker.
    try:
        from pyspark_pyrocket.tools.doctor.endpoint import check_endpoint
        from pyspark_pyrocket.tools.doctor.namesrv import check_namesrv
    except PackageMissingError as error:
        return [fail("endpoint", error.message, error.remedy)]
    if addresses:
        return check_endpoint(addresses, place.credentials())
    servers, credentials = place.find().namesrv, place.credentials()
    with closing(place.cluster()) as cluster:
        return check_namesrv(cluster, servers, credentials, topic, group)


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
