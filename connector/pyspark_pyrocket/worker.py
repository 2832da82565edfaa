"""Logging, signals and garbage collection in the processes in which Spark runs this package."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Collection
from itertools import islice

LOG = logging.getLogger("pyspark_pyrocket")

LEVEL = "PYROCKET_LOG_LEVEL"
"""Environment variable with the log level; Spark's processes inherit no logging configuration."""

_level = logging.getLevelName(os.environ.get(LEVEL, "").strip().upper())
if isinstance(_level, int):
    LOG.setLevel(_level)

_MAX_NAMES = 10

_frozen = False


def in_worker() -> bool:
    """Return whether Spark started this process: for data source look-ups, planning or tasks."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = "" if spec is None else spec.name
    return name in ("pyspark.daemon", "pyspark.worker") or name.startswith("pyspark.sql.")


def in_source_runner() -> bool:
    """Return whether this process is Spark's source runner, which serves one streaming query."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.endswith("python_streaming_source_runner")


def exit_on_sigterm() -> None:
    """Exit cleanly on SIGTERM, so that `stop` is called: Spark stops an idle runner with this
    signal. A runner that is already stopping must not be interrupted: see `ignore_sigterm`.
    """

    def exit_once(*_: object) -> None:
        ignore_sigterm()
        sys.exit(0)

    signal.signal(signal.SIGTERM, exit_once)


def ignore_sigterm() -> None:
    """Ignore SIGTERM from now on: Spark sends SIGTERM just after it has closed the runner's socket.

    If the signal interrupts the closing of a gRPC channel, the process does not end.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def log_to_stderr() -> None:
    """Log to standard error, because Spark configures no logging in its Python processes."""
    if not LOG.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s pyrocket: %(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(LOG.level or logging.INFO)


def some_of(names: Collection[str]) -> str:
    """Return the names for a log line, or the first ten and the number of the others."""
    shown = ", ".join(islice(names, _MAX_NAMES))
    more = len(names) - _MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def freeze_imports() -> None:
    """Exclude all loaded objects from garbage collection, once per worker process.

    Spark runs a full collection after every task; with pyarrow loaded that takes 40 ms.
    """
    global _frozen
    if not _frozen:
        gc.freeze()
        _frozen = True
