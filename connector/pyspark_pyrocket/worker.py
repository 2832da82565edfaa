"""The processes in which Spark runs this package: their logging, signals and garbage collection."""

import gc
import logging
import os
import signal
import sys

LOG = logging.getLogger("pyspark_pyrocket")

LEVEL = "PYROCKET_LOG_LEVEL"
"""The environment variable with the log level: Spark's processes inherit nothing else."""

_level = logging.getLevelName(os.environ.get(LEVEL, "").strip().upper())
if isinstance(_level, int):
    LOG.setLevel(_level)

_frozen = False


def in_worker() -> bool:
    """Return whether Spark started this process: for look-up, planning or tasks."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = "" if spec is None else spec.name
    return name in ("pyspark.daemon", "pyspark.worker") or name.startswith("pyspark.sql.")


def in_source_runner() -> bool:
    """Return whether this process serves one streaming query and nothing else."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.endswith("python_streaming_source_runner")


def exit_on_sigterm() -> None:
    """Make `query.stop()` call the reader's `stop`: Spark ends an idle runner with SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def log_to_stderr() -> None:
    """Log to the driver's standard error; Spark configures no logging in its Python processes."""
    if not LOG.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s pyrocket: %(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(LOG.level or logging.INFO)


def freeze_imports() -> None:
    """Exclude all loaded objects from garbage collection, once per worker process.

    Spark runs a full collection after every task; with pyarrow loaded that takes 40 ms.
    """
    global _frozen
    if not _frozen:
        gc.freeze()
        _frozen = True
