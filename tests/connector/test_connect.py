"""Spark Connect: a client without Spark uses a server with pyrocket."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("connect_job.py")


@pytest.mark.heavy
@pytest.mark.spark
def test_batches_sql_and_streams_work_through_spark_connect(tmp_path, checkout_in_children):
    """In a new process: one that has connected to a server cannot create a classic session."""
    pytest.importorskip("grpc", reason="Spark Connect's client needs grpcio, see setup.py")
    # As in Spark's own tests, the server listens on any free port, not on 15002.
    environment = {**os.environ, "SPARK_TESTING": "yes"}
    done = subprocess.run(
        [sys.executable, JOB, tmp_path / "store", tmp_path / "checkpoint"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr.partition("JVM stacktrace")[0][-5_000:]
