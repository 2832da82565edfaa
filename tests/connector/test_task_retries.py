"""Task failures, speculation and stage retries of a real cluster leave nothing twice."""

import os
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from connector.cluster_job import ROWS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("cluster_job.py")
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@pytest.fixture
def master(checkout_in_children, tmp_path):
    """A cluster of two workers with a core each; two hosts, because Spark speculates elsewhere."""
    from pyspark_pyrocket.java import use_java

    use_java()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "cluster.log").open("wb"))
        stack.enter_context(daemon(log, "master.Master", "127.0.0.1", "--port", str(port)))
        for number in (1, 2):
            where = ["--work-dir", str(tmp_path / f"work{number}")]
            size = ["--cores", "1", "--memory", "600m"]
            host = f"127.0.0.{number}"
            stack.enter_context(daemon(log, "worker.Worker", host, *size, *where, url))
        yield url


@contextmanager
def daemon(log, name, host, *arguments):
    command = [SPARK_CLASS, f"org.apache.spark.deploy.{name}", "--host", host, "--webui-port", "0"]
    environment = {**os.environ, "SPARK_LOCAL_IP": host}
    process = subprocess.Popen(
        [*command, *arguments], stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def test_attempts_that_fail_come_second_or_are_lost_leave_nothing(box, master, tmp_path):
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    run = subprocess.run(
        [sys.executable, JOB, master, box.path, attempts],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-5_000:]
    tried = Counter(path.name.rsplit(".", 1)[0] for path in attempts.iterdir())
    for topic in ("failed", "slow", "lost"):
        assert tried[f"{topic}.1"] >= 2, tried
        bodies = [int(body[:4].rstrip(b".")) for body in type(box)(box.path, topic).bodies()]
        assert sorted(bodies) == list(range(ROWS)), topic
