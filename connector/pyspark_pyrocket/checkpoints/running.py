"""Whether a query may be running just now, as far as this machine can tell."""

import os
from pathlib import Path

_RUNNER = b"pyspark.sql.streaming.python_streaming_source_runner"


def queries_on(store: Path, processes: Path = Path("/proc")) -> list[int]:
    """Return the processes of streaming queries, of this user, that have the store open.

    Spark gives every streaming query over a Python source such a process. Which checkpoint it has
    cannot be seen. Where there is no /proc nothing is.
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
        return False  # It has ended, or is somebody else's.
    return str(store.resolve()) in links
