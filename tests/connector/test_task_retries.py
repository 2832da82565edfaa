"""Task failures, speculation and stage retries of a real cluster leave nothing twice."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from clusters import two_workers
from connector.cluster_job import ROWS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("cluster_job.py")


@pytest.fixture
def master(checkout_in_children, tmp_path):
    """A cluster of two workers with a core each; two hosts, because Spark speculates elsewhere."""
    from pyspark_pyrocket.java import use_java

    use_java()
    with two_workers(tmp_path) as url:
        yield url


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
