"""What a user of Spark sees of a broker: the reason of an error at once, and groups that follow.

`test_endpoint_errors` checks the same errors without Spark.
"""

import time

import pytest
from pyrocket import Store
from pyspark.errors import PySparkException
from support.broker import served
from support.broker_process import running
from support.certificates import write_certificate
from support.memory import Fault
from support.stores import batch
from support.transports import disconnect

pytestmark = pytest.mark.heavy

NO_CHANCE_S = 20
"""Spark starts a Python process first; the default of endpoint.timeout is a minute."""


def filled(path):
    with Store.open(path, create=True) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(batch([b"a", b"b"], 0), topic="t")
    return path


def run(spark, options, checkpoint):
    """Run a stream to its end; return the number of rows that it has read."""
    asked = {**options, "topic": "t", "startingOffsets": "earliest"}
    frame = spark.readStream.format("pyrocket").options(**asked).schema("body STRING").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
        return sum(each["numInputRows"] for each in query.recentProgress)
    finally:
        query.stop()


@pytest.fixture
def ways(spark, tmp_path):
    """Ways to use the source with options: a new and a restarted stream, a read, a write."""
    checkpoint = tmp_path / "checkpoint"
    run(spark, {"path": str(filled(tmp_path / "known"))}, checkpoint)
    rows = spark.createDataFrame([("c",)], "body STRING")

    def read(options):
        asked = spark.read.format("pyrocket").options(**options, topic="t")
        asked.schema("body STRING").load().count()

    def write(options):
        asked = rows.write.format("pyrocket").options(**options, topic="t")
        asked.mode("append").save()

    return {
        "new stream": lambda given: run(spark, given, tmp_path / "new"),
        "restarted stream": lambda given: run(spark, given, checkpoint),
        "read": read,
        "write": write,
    }


def check_reported(ways, options, reason):
    for way, use in ways.items():
        began = time.monotonic()
        with pytest.raises(PySparkException) as caught:
            use(options)
        assert time.monotonic() - began < NO_CHANCE_S, way
        # Spark's description of the query follows.
        text = str(caught.value).partition("=== Streaming Query ===")[0]
        assert reason in text, way
        assert len(text.splitlines()) <= 10, text


def test_a_certificate_that_is_not_trusted(ways, tmp_path):
    pem, key = write_certificate(tmp_path)
    other, _ = write_certificate(tmp_path, "other")
    secured = ("--tls-certificate", pem, "--tls-key", key)
    with running(filled(tmp_path / "store"), *secured) as (_, found):
        address = found.listen[0]
        wrong = {"endpoint": address, "endpoint.tls": "true", "endpoint.ca": str(other)}
        check_reported(ways, wrong, "CERTIFICATE_VERIFY_FAILED")
        check_reported(ways, {"endpoint": address}, f"The broker at {address} uses TLS, but")


def test_tls_on_a_port_without_it(ways, tmp_path):
    with running(filled(tmp_path / "store")) as (_, found):
        address = found.listen[0]
        options = {"endpoint": address, "endpoint.tls": "true"}
        check_reported(ways, options, f"The broker at {address} does not use TLS, but")


def test_a_closed_port(ways):
    """A restarted stream waits for as long as it may: its broker may be about to start."""
    closed = {"endpoint": "127.0.0.1:1", "endpoint.timeout": "9s"}
    check_reported(
        ways, closed, "127.0.0.1:1: Failed to connect to remote host: Connection refused"
    )


@pytest.mark.parametrize("seconds", [0.2, 2])
def test_a_group_follows_a_stream_although_each_commit_is_slow(spark, tmp_path, seconds):
    path = filled(tmp_path / "store")
    slow = [Fault("commit", seconds=seconds) for _ in range(20)]
    with served(Store.open(path), faults=slow) as address:
        options = {"endpoint": address, "commitToGroup": "billing"}
        assert run(spark, options, tmp_path / "checkpoint") == 2
        disconnect()
    assert len(slow) < 20
    with Store.open(path, read_only=True) as store:
        assert store.groups.committed("billing", "t") == {0: 2}
