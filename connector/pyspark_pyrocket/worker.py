"""The processes in which Spark runs this: what they lack, and what to do about it."""

import gc
import logging
import os
import signal
import sys

LOG = logging.getLogger("pyspark_pyrocket")

LEVEL = "PYROCKET_LOG_LEVEL"
"""The variable of the environment that sets its level: Spark's processes inherit nothing else."""

_level = logging.getLevelName(os.environ.get(LEVEL, "").strip().upper())
if isinstance(_level, int):
    LOG.setLevel(_level)

_frozen = False


def in_worker() -> bool:
    """Tell whether Spark started this process: to look sources up, to plan, or for tasks."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = "" if spec is None else spec.name
    return name in ("pyspark.daemon", "pyspark.worker") or name.startswith("pyspark.sql.")


def in_source_runner() -> bool:
    """Tell whether this process answers for a streaming query, and for nothing else."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.endswith("python_streaming_source_runner")


def exit_on_sigterm() -> None:
    """Make `query.stop()` reach the reader's `stop`: Spark ends an idle runner with SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def log_to_stderr() -> None:
    """Show what a query logs on the driver's standard error; Spark sets up nothing there."""
    if not LOG.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s pyrocket: %(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(LOG.level or logging.INFO)


def freeze_imports() -> None:
    """Take what is loaded out of the garbage collector's sight, once per worker process.

    Spark runs a full collection after every task; with pyarrow loaded it takes 40 ms.
    """
    global _frozen
    if not _frozen:
        gc.freeze()
        _frozen = True
