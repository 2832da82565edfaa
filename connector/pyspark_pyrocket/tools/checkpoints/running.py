"""Finds streaming queries that run on this machine, from /proc."""

import os
import time
from pathlib import Path

PATIENCE_SECONDS = 3.0
"""How long to wait for the process of a query that has just stopped to exit."""

_RUNNER = b"pyspark.sql.streaming.python_streaming_source_runner"


def still_running(store: Path) -> list[int]:
    """Return `queries_on`, after waiting for queries that are stopping."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (found := queries_on(store)) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def queries_on(store: Path, processes: Path = Path("/proc")) -> list[int]:
    """Return the processes of this user's streaming queries that have the store open.

    Spark starts such a process for every streaming query with a Python source. The checkpoint that
    it uses is not visible. Without /proc the list is empty.
    """
    if not processes.is_dir():
        return []
    numbers = sorted(int(name) for name in os.listdir(processes) if name.isdigit())
    return [number for number in numbers if _has_open(processes / str(number), store)]


def _has_open(process: Path, store: Path) -> bool:
    try:
        if _RUNNER not in (process / "cmdline").read_bytes():
            return False
        links = [os.readlink(process / "fd" / name) for name in os.listdir(process / "fd")]
    except OSError:
        return False  # The process has ended, or belongs to another user.
    return str(store.resolve()) in links
