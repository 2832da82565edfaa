"""Spark over `endpoint`: executors without the files, idle queries, credentials, a move."""

import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from pyrocket import Client, Connection, RemoteSink
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from support.broker_process import RestartableBroker, running
from support.certificates import write_certificate
from support.stores import batch
from support.transports import disconnect
from support.users import secret_of, write_users

JOB = Path(__file__).with_name("endpoint_job.py")
HIDES = ["unshare", "--mount"]


def can_hide():
    """Return whether this machine allows a process to have its own mounts."""
    if not shutil.which(HIDES[0]):
        return False
    return subprocess.run([*HIDES, "true"], capture_output=True, check=False).returncode == 0


class Broker(RestartableBroker):
    """A broker that counts calls."""

    def calls(self):
        """Return the number of calls so far."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        counts = [line for line in lines if line.startswith("rocketmq_rpc_latency_count{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in counts)


@pytest.fixture
def broker(box):
    """Run a broker for the store of the box."""
    box.create(queues=2)
    broker = Broker(box.path)
    yield broker
    broker.stop()
    disconnect()


@pytest.fixture
def served(box, broker):
    """The box, accessed over the broker."""
    return replace(box, address=broker.address)


@pytest.mark.spark
@pytest.mark.heavy
@pytest.mark.skipif(not can_hide(), reason="needs its own mounts")
def test_executors_need_no_access_to_the_files(box, broker, tmp_path):
    arguments = [box.path, broker.address, tmp_path / "checkpoint"]
    command = [*HIDES, sys.executable, JOB, *arguments]
    job = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert job.returncode == 0, job.stderr[-3000:]
    assert sorted(int(body) for body in box.other("second").bodies()) == list(range(600))


def wait_until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_idle_query_makes_at_most_one_call_a_second_and_its_planner_ends(served, stream, broker):
    """The planner is the process in which Spark plans the micro-batches."""
    served.send("x")
    stream.options = {**served.options, "startingOffsets": "earliest"}
    query = stream.start()
    try:
        query.processAllAvailable()
        time.sleep(1)
        before = broker.calls()
        time.sleep(3)
        assert broker.calls() - before <= 3
        assert planners(stream.spark)
    finally:
        query.stop()
    wait_until(lambda: not planners(stream.spark), seconds=20)


@pytest.mark.alone
def test_an_idle_query_detects_a_message_within_50_ms(served, broker):
    """This excludes the time that Spark needs from asking for offsets to starting a task."""
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


def test_an_idle_query_waits_for_a_change_until_spark_runs_a_micro_batch(
    served, broker, monkeypatch
):
    """Spark runs a micro-batch if another source of the query has new messages."""
    monkeypatch.setattr("pyspark_pyrocket.source.stream_reader.IDLE_WAIT_S", 60)
    schema = default_columns(kafka=False, headers=False, text=False)
    reader = DefaultSource(served.options).streamReader(schema=schema)
    client, everything = Client(Connection(broker.address)), ReadAllAvailable()
    sink, start, began = RemoteSink(client), reader.initialOffset(), time.monotonic()
    for _ in range(4):
        assert reader.latestOffset(start, everything) == start
        reader.commit(start)
    for _ in range(2):
        assert reader.latestOffset(start, everything) == start
        appending = threading.Timer(0.3, sink.append, [batch([b"x"], 0)], {"topic": "t"})
        appending.start()
        end = reader.latestOffset(start, everything)
        assert end != start
        appending.join()
        start = end
        reader.latestOffset(start, everything)
        reader.commit(start)
    reader.prepareForTriggerAvailableNow()
    for _ in range(3):
        assert reader.latestOffset(start, everything) == start
    assert time.monotonic() - began < 60, "it has only waited for messages"
    client.close()


@pytest.mark.spark
@pytest.mark.slow
def test_tasks_use_tls_and_credentials(box, spark, tmp_path):
    """A read and a write of a user with these rights; plans do not show the secret."""
    box.create(queues=2)
    pem, key = write_certificate(tmp_path)
    secret, users = tmp_path / "secret", write_users(tmp_path, spark=("admin", "t"))
    secret.touch(0o600)
    secret.write_text(secret_of("spark"))
    flags = ("--users", users, "--tls-certificate", pem, "--tls-key", key)
    with running(Path(box.path), *flags) as (_, found):
        target = {"endpoint": found.listen[0], "endpoint.tls": "true", "endpoint.ca": str(pem)}
        target |= {"accessKey": "spark", "secretKeyFile": str(secret)}
        rows = spark.range(0, 20, 1, 2).selectExpr("CAST(id AS STRING) AS body")
        rows.write.format("pyrocket").mode("append").options(**target, topic="t").save()
        with_secret = {**target, "secretKey": secret_of("spark")}
        del with_secret["secretKeyFile"]
        read = spark.read.format("pyrocket").options(**with_secret, topic="t")
        frame = read.schema("body STRING").load()
        assert sorted(int(row.body) for row in frame.collect()) == [*range(20)]
        assert secret_of("spark") not in frame._jdf.queryExecution().toString()
        with pytest.raises(Exception, match="PERMISSION_DENIED"):
            spark.read.format("pyrocket").options(**target, topic="forbidden").load().count()
        disconnect()


@pytest.mark.spark
@pytest.mark.heavy
def test_the_documented_move_between_path_and_endpoint(box, tmp_path):
    """Run the program of store/BROKER.md with `path`, with `endpoint`, and with `path` again."""
    page = JOB.parents[3] / "store" / "BROKER.md"
    (code,) = re.findall(r"```python\n(# pipeline\.py.*?)```", page.read_text(), re.DOTALL)
    program = tmp_path / "pipeline.py"
    program.write_text(code)
    box.other("orders").create(queues=2)

    def run(place):
        command = [sys.executable, program, *place, tmp_path / "checkpoint"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]

    box.other("orders").send("a", "b")
    run(["path", box.path])
    with running(Path(box.path)) as (_, found):
        replace(box, address=found.listen[0], topic="orders").send("c", "d")
        run(["endpoint", found.listen[0]])
        disconnect()
    box.other("orders").send("e")
    run(["path", box.path])
    assert box.other("shipments").bodies() == [b"a", b"b", b"c", b"d", b"e"]


def planners(spark):
    """Return the lines of `ps` of the planners that this Spark session has started."""
    jvm = spark.sparkContext._gateway.proc.pid
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    parents = {line.split()[0]: line.split()[1] for line in lines}

    def is_started_by_the_jvm(pid):
        while pid in parents and pid != str(jvm):
            pid = parents[pid]
        return pid == str(jvm)

    return [
        line
        for line in lines
        if "python_streaming_source_runner" in line and is_started_by_the_jvm(line.split()[0])
    ]
