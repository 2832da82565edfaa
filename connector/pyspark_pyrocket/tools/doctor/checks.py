"""Checks Python in the driver and in Spark's workers, pyspark, Java, and the store's disk."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pyspark_pyrocket.tools.doctor.report import Check, fail, ok, warn
from pyspark_pyrocket.tools.java import JavaNotFoundError, find_java
from pyspark_pyrocket.tools.python_link import needs_quotes, python_for_spark

PYTHON_MINIMUM = (3, 10)
PYSPARK_MINIMUM = (4, 2)
ANSWER_TIMEOUT_S = 60

_ASK_WORKER = """
import importlib.util, json, sys
print(json.dumps([list(sys.version_info[:2]), importlib.util.find_spec("pyarrow") is not None]))
"""


def worker_python() -> str:
    """Return the interpreter that Spark starts for workers if this process is the driver."""
    return os.environ.get("PYSPARK_PYTHON") or "python3"


def planner_python() -> str:
    """Return the interpreter that Spark's JVM starts to look up sources and to plan queries."""
    return os.environ.get("PYSPARK_DRIVER_PYTHON") or worker_python()


def check_python() -> Check:
    finding = f"Python {_dotted(sys.version_info[:3])} at {sys.executable}"
    if sys.version_info < PYTHON_MINIMUM:
        return fail("python", finding, f"Use Python {_dotted(PYTHON_MINIMUM)} or newer.")
    return ok("python", finding)


def check_worker(python: str) -> Check:
    """Check that workers run this minor version of Python, as Spark requires, and have pyarrow."""
    named = f"{python} ({'PYSPARK_PYTHON' if os.environ.get('PYSPARK_PYTHON') else 'the default'})"
    use_this = (
        "Call pyspark_pyrocket.configure() before the session, or set"
        f" PYSPARK_PYTHON={python_for_spark(sys.executable)} before Spark starts."
    )
    if needs_quotes(python):
        finding = f"{named} has a space in its path, which Spark does not support"
        use = f"Set PYSPARK_PYTHON={python_for_spark(python)} before Spark starts."
        return fail(
            "workers", finding, f"Call pyspark_pyrocket.configure() before the session. {use}"
        )
    try:
        worker_version, has_pyarrow = _ask(python)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return fail("workers", f"{named} does not run: {error}", use_this)
    finding = f"{named} is Python {_dotted(worker_version)}"
    if worker_version != sys.version_info[:2]:
        return fail("workers", f"{finding}, but the driver is another minor version", use_this)
    if not has_pyarrow:
        return fail(
            "workers", f"{finding} without pyarrow", f"{use_this} Or install pyarrow there."
        )
    return ok("workers", f"{finding} with pyarrow")


def check_pyspark() -> Check:
    """Check pyspark's version, and that it supports this Python."""
    needed = f"pyspark>={_dotted(PYSPARK_MINIMUM)}"
    try:
        release = pyspark_version()
    except ImportError as error:
        remedy = "Run: pip install '.[spark]' in the checkout of pyrocket."
        return fail("pyspark", f"cannot be imported: {error}", remedy)
    if release < PYSPARK_MINIMUM:
        return fail("pyspark", f"pyspark {_dotted(release)}", f"Run: pip install '{needed}'.")
    if release >= (4, 3) and sys.version_info < (3, 11):
        remedy = f"pyspark 4.3 needs Python 3.11. Use it, or run: pip install '{needed},<4.3'."
        return fail("pyspark", f"pyspark {_dotted(release)}", remedy)
    return ok("pyspark", f"pyspark {_dotted(release)}")


def check_java() -> Check:
    """Check that a Java installation that Spark supports is found, and report it."""
    try:
        return ok("java", find_java().describe())
    except JavaNotFoundError as error:
        return fail("java", error.found, error.remedy)


def pyspark_version() -> tuple[int, ...]:
    """Return pyspark's version as numbers. Raises ImportError."""
    try:
        text = version("pyspark")
    except PackageNotFoundError:
        # A Spark distribution on PYTHONPATH has no metadata.
        from pyspark import __version__ as text
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _ask(python: str) -> tuple[tuple[int, ...], bool]:
    answer = subprocess.run(
        [python, "-c", _ASK_WORKER],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=ANSWER_TIMEOUT_S,
        check=True,
    )
    numbers, has_pyarrow = json.loads(answer.stdout.splitlines()[-1])
    return tuple(numbers), bool(has_pyarrow)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


CLEAN_EXPIRED_PERCENT = 75
CLEAN_OLDEST_PERCENT = 85
REFUSE_WRITES_PERCENT = 90
"""RocketMQ's thresholds for the use of a store's file system, in percent."""


def check_space(store: str | None) -> Check:
    """Check the disk usage of the store's file system; the store need not exist yet."""
    if not store:
        return ok("space", "no store given: add a PATH, or set PYROCKET_STORE")
    path = Path(os.path.abspath(store.removeprefix("file:")))
    place = next(folder for folder in (path, *path.parents) if folder.exists())
    try:
        blocks = os.statvfs(place)
    except OSError as error:
        return fail("space", f"{place}: {error.strerror}", "Specify a readable directory.")
    # As in df and RocketMQ: blocks reserved for root are neither used nor free.
    taken = blocks.f_blocks - blocks.f_bfree
    used = 100 * taken / ((taken + blocks.f_bavail) or 1)
    free = blocks.f_bavail * blocks.f_frsize / 2**30
    finding = f"{place} is on a file system {used:.0f} % full, {free:.1f} GiB free"
    return judge_space(used, finding)


def judge_space(used_percent: float, found: str) -> Check:
    """Return the result of the check according to RocketMQ's thresholds."""
    for limit, report, effect in (
        (REFUSE_WRITES_PERCENT, fail, "appends are rejected"),
        (CLEAN_OLDEST_PERCENT, warn, "the oldest files are deleted before they expire"),
        (CLEAN_EXPIRED_PERCENT, warn, "expired files are deleted at any hour"),
    ):
        if used_percent >= limit:
            remedy = "Free some space, or shorten the retention time."
            return report("space", found, f"At {limit} % or more, {effect}. {remedy}")
    return ok("space", found)
