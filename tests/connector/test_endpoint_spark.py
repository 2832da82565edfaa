"""Spark over `endpoint`: executors without the files, restarts of the broker, and moves."""

import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyrocket import Client, Connection, RemoteSink
from support.broker_process import running
from support.stores import batch
from support.transports import disconnect

JOB = Path(__file__).with_name("endpoint_job.py")
HIDES = ["unshare", "--mount"]


def can_hide():
    """Return whether this machine allows a process to have mounts of its own."""
    if not shutil.which(HIDES[0]):
        return False
    return subprocess.run([*HIDES, "true"], capture_output=True, check=False).returncode == 0


class Restarted:
    """A broker that is stopped and started again on the same port."""

    def __init__(self, path):
        self._path, self._stack, self.address, self.metrics = Path(path), ExitStack(), "", ""
        self.start()

    def start(self):
        flags = ("--listen", self.address or "127.0.0.1:0", "--metrics", "127.0.0.1:0")
        _, found = self._stack.enter_context(running(self._path, *flags))
        self.address, self.metrics = found.listen[0], found.metrics

    def stop(self):
        self._stack.close()

    def calls(self):
        """Count the calls so far."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        counts = [line for line in lines if line.startswith("rocketmq_rpc_latency_count{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in counts)


@pytest.fixture
def broker(box):
    """A broker for the store of the box."""
    box.create(queues=2)
    broker = Restarted(box.path)
    yield broker
    broker.stop()
    disconnect()


@pytest.fixture
def served(box, broker):
    """The box over the broker."""
    return replace(box, address=broker.address)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not can_hide(), reason="needs mounts of its own")
def test_executors_need_no_access_to_the_files(box, broker, tmp_path):
    arguments = [box.path, broker.address, tmp_path / "checkpoint"]
    command = [*HIDES, sys.executable, JOB, *arguments]
    job = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert job.returncode == 0, job.stderr[-3000:]
    assert sorted(int(body) for body in box.other("second").bodies()) == list(range(600))


@pytest.mark.parametrize("batches", [4, pytest.param(50, marks=pytest.mark.heavy)])
def test_reused_workers_survive_a_restart_of_the_broker(served, stream, broker, batches):
    """Spark's workers are forked, and each is used for many micro-batches."""
    sent = [f"{number:04}" for number in range(10 * batches)]
    served.send(*sent)
    query = (
        stream.spark.readStream.format("pyrocket")
        .options(**served.options, startingOffsets="earliest", maxOffsetsPerTrigger=10)
        .schema("body STRING")
        .load()
        .writeStream.format("pyrocket")
        .options(**served.other("copy").options)
        .option("checkpointLocation", str(stream.folder / "checkpoint"))
        .start()
    )
    try:
        wait_until(lambda: len(query.recentProgress) >= batches // 2)
        broker.stop()
        time.sleep(0.5)
        broker.start()
        query.processAllAvailable()
        assert len(stream.batches("commits")) >= batches
    finally:
        query.stop()
    assert served.other("copy").bodies() == sorted(body.encode() for body in sent)


def wait_until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_idle_query_makes_at_most_one_call_a_second(served, stream, broker):
    served.send("x")
    stream.options = {**served.options, "startingOffsets": "earliest"}
    query = stream.start()
    try:
        query.processAllAvailable()
        time.sleep(1)
        before = broker.calls()
        time.sleep(4)
        assert broker.calls() - before <= 4
    finally:
        query.stop()


@pytest.mark.alone
def test_an_idle_query_sees_a_message_within_50_ms(served, broker):
    """This excludes Spark's own time between the request for offsets and the start of a task."""
    from pyspark_pyrocket.options.endpoint import Endpoint
    from pyspark_pyrocket.transport.endpoint import EndpointTarget

    source = EndpointTarget(Endpoint(addresses=(broker.address,))).open_source()
    client, lateness = Client(Connection(broker.address)), []
    sink = RemoteSink(client)
    sink.append(batch([b"first"], 0), topic="t")
    for _ in range(40):
        time.sleep(0.1)
        before = source.version()
        sink.append(batch([b"x"], 0), topic="t")
        appended = time.monotonic()
        while source.version() == before:
            time.sleep(0.001)
        lateness.append(time.monotonic() - appended)
    client.close()
    assert sorted(lateness)[-3] < 0.05


@pytest.mark.parametrize("to_endpoint", [True, False])
def test_a_checkpoint_moves_between_path_and_endpoint(box, spark, tmp_path, to_endpoint):
    """The query resumes at its offsets, and the last micro-batch is published once."""
    box.create(queues=2)
    sent = []

    def run(target, repeat=False):
        if repeat:
            for name in ("0", ".0.crc"):
                (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        query = (
            spark.readStream.format("pyrocket")
            .options(**target.options, startingOffsets="earliest")
            .schema("body STRING")
            .load()
            .writeStream.format("pyrocket")
            .options(**target.other("copy").options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    def step(target, *bodies):
        target.send(*bodies)
        sent.extend(bodies)
        run(target, repeat=len(sent) > len(bodies))

    def over_endpoint(*bodies):
        with running(Path(box.path)) as (_, found):
            step(replace(box, address=found.listen[0]), *bodies)
        disconnect()

    def by_path(*bodies):
        step(box, *bodies)

    first, second = (by_path, over_endpoint) if to_endpoint else (over_endpoint, by_path)
    first("a", "b")
    second("c", "d")
    assert box.other("copy").bodies() == [body.encode() for body in sorted(sent)]
