"""Task failures, speculation and stage retries on a real cluster cause no duplicates."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from connector.sink.cluster_job import BODY_BYTES, KEYS, MISHAPS, ROWS, STREAMED
from pyrocket import Store
from support.clusters import two_workers

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("cluster_job.py")


@pytest.fixture
def master(checkout_in_children, tmp_path):
    """A cluster of two workers with a core each, on two hosts, as speculation requires."""
    from pyspark_pyrocket import configure

    configure()
    with two_workers(tmp_path) as url:
        yield url


def run_job(master, store, attempts, kind):
    """Run the job, and check that all of its faults were injected."""
    attempts.mkdir()
    run = subprocess.run(
        [sys.executable, JOB, master, store, attempts, kind],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stderr[-5_000:]
    tried = Counter(path.name.rsplit(".", 1)[0] for path in attempts.glob("*.*.*"))
    assert all(tried[f"{name}.1"] >= 2 for name in MISHAPS), tried


@pytest.mark.heavy
def test_failed_late_and_lost_attempts_leave_no_rows(box, master, tmp_path):
    run_job(master, box.path, tmp_path / "attempts", "batches")
    for topic in MISHAPS:
        bodies = [int(body[:4].rstrip(b".")) for body in type(box)(box.path, topic).bodies()]
        assert sorted(bodies) == list(range(ROWS)), topic


def fill_source(path):
    """Send `key:number`: consecutive numbers for each key, and one queue per key."""
    numbers = [f"{at % KEYS}:{at // KEYS}:".ljust(BODY_BYTES, ".") for at in range(STREAMED)]
    queues = pa.array([at % KEYS % 4 for at in range(STREAMED)], pa.int32())
    batch = pa.record_batch({"body": pa.array(numbers).cast(pa.binary()), "queueId": queues})
    with Store.open(path, create=True) as store:
        store.topics.create("source")
        store.append_batch(batch, topic="source")


@pytest.mark.heavy
def test_failed_attempts_in_a_stream_leave_no_rows_and_keep_the_order_of_keys(
    box, master, tmp_path
):
    fill_source(box.path)
    run_job(master, box.path, tmp_path / "attempts", "stream")
    found = {}
    with Store.open(box.path, read_only=True) as store:
        for queue_id, at in store.offsets("streamed").items():
            for batch in store.scan("streamed", queue_id, 0, at.maximum, ["body"]):
                for body in batch["body"].to_pylist():
                    key, number, _ = body.decode().split(":")
                    found.setdefault((key, queue_id), []).append(int(number))
    assert len(found) == KEYS, "each key is in one queue"
    assert all(numbers == list(range(STREAMED // KEYS)) for numbers in found.values())
