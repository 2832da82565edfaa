"""A broker on a disk that fills up: it is killed, drained by all kinds of clients, cleaned, and
used again. No acknowledged message is lost, and its health is right at each step.

The disk is a small tmpfs; mounting a tmpfs requires root.
"""

import importlib.util
import json
import logging
import random
import time
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest
from crash.test_killed_broker import free_port
from pyrocket import Message
from pyrocket.client import Producer, PullConsumer
from pyrocket.errors import PyrocketError
from pyrocket.tools.verify.verify import verify
from pyrocket.wire.descriptors import message_class
from support.broker_process import start, wait_until_it_serves
from support.commands import document, run
from support.disks import mounted
from support.name_server import wait_until
from support.rocketmq_python import TOPIC, result
from support.rocketmq_python import start as start_python_client
from support.transports import disconnect

MIB = 1 << 20
READY, FULL = (200, "ready\n", 1), (503, "the disk is full\n", 2)
pytestmark = [
    *(pytest.mark.crash, pytest.mark.spark, pytest.mark.heavy),
    pytest.mark.skipif(
        importlib.util.find_spec("rocketmq") is None, reason="needs rocketmq-python-client"
    ),
]


class Broker:
    """A broker process that is killed and started again on the same ports."""

    def __init__(self, path):
        self.path, self.endpoint = path, f"127.0.0.1:{free_port()}"
        self.metrics = f"127.0.0.1:{free_port()}"
        self.start()

    def start(self):
        flags = ("--log-file-bytes", "1m", "--flush", "sync", "--log-level", "error")
        ports = ("--listen", self.endpoint, "--metrics", self.metrics)
        self.process = start(self.path, *ports, *flags)
        wait_until_it_serves(self.process, self.path)

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode

    @property
    def health(self):
        """The answers of /health and of gRPC's health check."""
        request = message_class("grpc.health.v1.HealthCheckRequest")(service="")
        reply = message_class("grpc.health.v1.HealthCheckResponse")
        with grpc.insecure_channel(self.endpoint) as channel:
            call = channel.unary_unary("/grpc.health.v1.Health/Check")
            status = reply.FromString(call(request.SerializeToString(), timeout=20)).status
        try:
            with urlopen(f"http://{self.metrics}/health", timeout=20) as found:
                return found.status, found.read().decode(), status
        except HTTPError as error:
            return error.code, error.read().decode(), status


class Walk:
    """The messages that were acknowledged, and the clients that drain them."""

    def __init__(self, broker, spark, folder):
        self.broker, self.spark, self.folder = broker, spark, folder
        self.sent, self.random = [], random.Random(1)

    def send(self, most):
        """Send messages until one fails; return the code of its error, or an empty string."""
        with Producer("walk", endpoint=self.broker.endpoint) as producer:
            for number in range(len(self.sent), len(self.sent) + most):
                body = f"{number}-{self.random.randbytes(10_000).hex()}"
                try:
                    producer.send(Message(topic=TOPIC, body=body.encode()))
                except PyrocketError as error:
                    return error.code
                self.sent.append(body)
        return ""

    def by_python_client(self, count):
        options = {"count": count + 1}  # The first message is received twice.
        process = start_python_client("receive", self.broker.endpoint, self.folder, **options)
        return {body for body, _ in result(process)}

    def by_client(self, count):
        found, end = set(), time.monotonic() + 120
        given = {"endpoint": self.broker.endpoint, "consume_from": "first"}
        with PullConsumer("client", **given) as consumer:
            consumer.assign(TOPIC)
            while len(found) < count:
                assert time.monotonic() < end
                found |= {message.body.decode() for message in consumer.poll()}
            consumer.commit()
        return found

    def by_spark(self, count):
        before = self.from_spark()
        source = {"endpoint": self.broker.endpoint, "topic": TOPIC, "commitToGroup": "spark"}
        stream = self.spark.readStream.format("pyrocket").schema("body STRING").options(**source)
        query = (
            stream.option("startingOffsets", "earliest")
            .load()
            .writeStream.format("json")
            .option("path", str(self.folder / "rows"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        disconnect()
        found = self.from_spark() - before
        assert len(found) == count
        return found

    def from_spark(self):
        """Return the rows that Spark has written."""
        files = (self.folder / "rows").glob("*.json")
        lines = (line for file in files for line in file.read_text().splitlines())
        return {json.loads(line)["body"] for line in lines}

    def committed(self, group):
        lags = document("group", "lag", group, "--endpoint", self.broker.endpoint)
        return sum(each["committedOffset"] for each in lags["lag"] if each["topic"] == TOPIC)


def tell(what, disk):
    logging.getLogger("walk").warning("%s, %d bytes free", what, disk.free_bytes)


@pytest.fixture
def disk(tmp_path):
    with mounted(tmp_path / "disk", 48 * MIB) as one:
        yield one


@pytest.fixture
def broker(disk):
    one = Broker(disk.store)
    yield one
    one.kill()


def test_a_full_disk_from_the_first_refusal_to_the_next_message(broker, disk, spark, tmp_path):
    walk, reserve = Walk(broker, spark, tmp_path), disk.store / "pyrocket/reserve"
    assert broker.health == READY
    assert walk.send(10_000) == "DISK_FULL"
    assert broker.health == FULL
    assert reserve.exists()
    tell(f"{len(walk.sent)} messages sent", disk)

    broker.kill()
    disk.fill()
    broker.start()
    assert broker.health == FULL
    assert not reserve.exists()
    assert walk.send(1) == "DISK_FULL"
    count = len(walk.sent)
    for drain in (walk.by_python_client, walk.by_client, walk.by_spark):
        assert drain(count) == {*walk.sent}
    assert walk.committed("client") == count
    assert broker.health == FULL
    tell("drained", disk)

    limits = ("--total-bytes", "4m", "--yes")
    done = run("store", "clean", "--endpoint", broker.endpoint, *limits)
    assert done.exit_code == 0, done.output
    tell("cleaned", disk)
    wait_until(lambda: broker.health == READY)
    wait_until(reserve.exists)
    assert walk.send(50) == ""
    new = {*walk.sent[count:]}
    for drain in (walk.by_python_client, walk.by_client, walk.by_spark):
        assert drain(50) == new
    assert broker.stop() == 0
    assert not verify(disk.store).findings
