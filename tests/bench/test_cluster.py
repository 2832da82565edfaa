"""Clusters of RocketMQ: our tasks without Spark beside RocketMQ's own clients on the same broker,
many pulls at once beside one, and triggers beside those of a trivial source.

Clients and broker share the cores, and all are warm before they are measured.
"""

import os
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from bench.pairs import ROUNDS, measure
from bench.test_endpoint import Timed, compare
from bench.test_planner import durations
from interop.maven import VERSIONS, UnavailableError, class_path
from interop.rocketmq import BROKER, JVM, Broker, Peer
from pyrocket import Credentials, QueueRange, RocketMQCluster
from pyrocket.remoting.pulls import PullSettings
from pyrocket.remoting.reads import read_range
from pyrocket.remoting.requests import highest_offset
from pyrocket.values.message import MessageQueue
from support.remoting_contract import Client, eventually

TASKS = 2
TESTS = Path(__file__).resolve().parent.parent
COMPILED = ("-XX:TieredStopAtLevel=4",)
"""The compiler of a server: the tests use the one that starts faster."""

PATIENT = {"waitTimeMillsInSendQueue": 30_000}
"""Otherwise, a broker on a busy machine refuses messages that have waited for 0.2 s."""


class Lines:
    """A process that answers each line of its input with a line."""

    def __init__(self, *command):
        paths = os.pathsep.join([os.environ["PYTHONPATH"], str(TESTS)])
        self._process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def say(self, *words):
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def hear(self):
        line = self._process.stdout.readline().strip()
        assert line, "the process has ended"
        return line

    def close(self):
        self._process.kill()
        self._process.communicate()


def python(module, *arguments):
    return Lines(sys.executable, "-m", module, *arguments)


def together(processes, *words):
    """Give all processes a command; return the sum of their answers."""
    for process in processes:
        process.say(*words)
    return sum(int(process.hear()) for process in processes)


class Rivals:
    """A broker of Java, two of our tasks and RocketMQ's own clients."""

    def __init__(self, classes, folder, stack, **config):
        self._peer = stack.enter_context(closing(Peer(classes, folder / "peer")))
        config = PATIENT | config
        started = Broker(self._peer, classes, folder / "b", folder / "s", jvm=COMPILED, **config)
        self.broker = stack.enter_context(started).process.pid
        self.name_server = f"127.0.0.1:{self._peer.port}"
        self._client = stack.enter_context(closing(Client([self.name_server])))
        given = (f"-Duser.home={folder}", "-cp", classes, "Rates", self.name_server, BROKER)
        self.java = stack.enter_context(closing(Lines("java", *JVM, *COMPILED, *given)))
        self.tasks = [
            stack.enter_context(
                closing(python("bench.cluster_tasks", self.name_server, number, TASKS))
            )
            for number in range(TASKS)
        ]

    def create(self, topic, queues):
        self._client.create(topic, read=queues, write=queues)
        eventually(lambda: self._client.names.routes([topic], 5, fresh=True).get(topic))

    def send_to_each(self, topic, queues):
        for queue_id in range(queues):
            self._client.send(topic, b"x" * 1024, queue_id=queue_id)

    def end(self, topic, queue_id):
        return self._client.one(highest_offset(topic, queue_id))

    def pair(self, report, name, ours, javas, rows, rounds):
        """Return a function that measures pairs, and prints the CPU time of all sides."""
        mine = Timed(partial(together, self.tasks, *ours), self.broker)
        other = Timed(partial(together, [self.java], *javas), self.broker)

        def measured():
            wall, _ = compare(mine, other, rounds)
            gigabytes = rows / 1e6  # So that costs are in µs a message.
            (broker, client), (their_broker, their_client) = (
                timed.costs(gigabytes) for timed in (mine, other)
            )
            report.line(
                f"{name}: µs of CPU a message: client {client:.2f}, broker {broker:.2f}; Java's"
                f" client {their_client:.2f}, broker {their_broker:.2f}"
            )
            return wall

        return measured


@pytest.fixture(params=VERSIONS)
def rivals(request, fast_disk, checkout_in_children):
    """Starts a broker and its clients; skips the test if the version is not available."""
    cache = request.config.cache.mkdir("interop")
    try:
        classes = class_path(request.param, cache)
    except UnavailableError as error:
        pytest.skip(f"RocketMQ {request.param} is not available: {error}")
    with ExitStack() as stack:
        yield partial(Rivals, classes, fast_disk, stack)


def test_reading_beside_javas_pull_consumer(rivals, large, report):
    """Two tasks, a queue each, beside two threads of a pull consumer, 32 messages a pull."""
    rows, rounds = (300_000, ROUNDS) if large else (2_000, 1)
    made, name = rivals(), "read 1 KiB, two tasks beside Java's pull consumer with two threads"
    made.create("T", TASKS)
    assert together(made.tasks, "write", "T", rows // TASKS) == rows
    eventually(lambda: together([made.java], "pull", "T") == rows)
    assert together(made.tasks, "read", "T") == rows
    pair = made.pair(report, name, ("read", "T"), ("pull", "T"), rows, rounds)
    report.rate_share(name, pair, rows, "messages", 1.4)


def test_writing_beside_javas_batch_producer(rivals, large, report):
    """Two tasks beside two threads that send batches of 500 messages, to four queues."""
    rows, rounds = (100_000, ROUNDS) if large else (2_000, 1)
    made, name = rivals(), "write 1 KiB, two tasks beside Java's batch producer with two threads"
    made.create("T", 4)
    ours, javas = ("write", "T", rows // TASKS), ("send", "T", rows)
    assert together(made.tasks, *ours) == together([made.java], *javas) == rows
    report.rate_share(
        name, made.pair(report, name, ours, javas, rows, rounds), rows, "messages", 1.0
    )


@contextmanager
def reading(name_server, broker, topic, rows):
    """Yield a function that reads a queue with a number of pulls at once."""
    part = QueueRange(MessageQueue(topic, broker, 0), 0, rows)
    with closing(RocketMQCluster([name_server], Credentials())) as cluster:

        def read(in_flight):
            pool = cluster.pool(broker, 10)
            slices = read_range(pool, part, PullSettings(in_flight=in_flight))
            assert sum(map(len, slices)) == rows

        yield read


def test_many_pulls_beside_one_from_disk(rivals, large, report):
    """A broker that reads its disk answers with eight messages."""
    rows, rounds = (30_000, ROUNDS) if large else (200, 1)
    made, name = rivals(accessMessageInMemoryMaxRatio=0), "read from disk: 8 pulls beside 1"
    made.create("T", 1)
    together(made.tasks, "write", "T", rows // TASKS)
    eventually(lambda: made.end("T", 0) == rows)
    with reading(made.name_server, BROKER, "T", rows) as read:
        pair = partial(measure, partial(read, 8), partial(read, 1), rounds)
        report.rate_share(name, pair, rows, "messages", 2)


@pytest.fixture
def fake(fast_disk, checkout_in_children):
    """Starts a fake cluster with the arguments of `bench.fake_cluster`, and returns it."""
    with ExitStack() as stack:

        def started(*arguments):
            made = python("bench.fake_cluster", fast_disk, *arguments)
            return stack.enter_context(closing(made))

        yield started


def test_many_pulls_beside_one_over_a_slow_network(fake, large, report):
    rows, rounds = (15_000, ROUNDS) if large else (200, 1)
    name_server, name = fake(rows, 1).hear(), "answers after 1 ms: 8 pulls beside 1"
    with reading(name_server, "broker-0", "t", rows) as read:
        pair = partial(measure, partial(read, 8), partial(read, 1), rounds)
        report.rate_share(name, pair, rows, "messages", 4)


def start(spark, source, options, folder):
    """Start a query with an interval, so that the waits of an idle query are in no micro-batch."""
    query = spark.readStream.format(source).options(**options).load().writeStream.format("noop")
    query = query.trigger(processingTime="300 milliseconds")
    return query.option("checkpointLocation", str(folder)).start()


def test_a_trigger_beside_that_of_a_trivial_source(
    spark_with_trivial, rivals, tmp_path, large, report
):
    """One new message in each of 16 queues, read by one task."""
    queues, pairs = 16, 25 if large else 1
    made = rivals()
    made.create("T", queues)
    ours = {"namesrv": made.name_server, "topic": "T", "startingOffsets": "earliest"}
    clock, batches = tmp_path / "clock", tmp_path / "batches"
    clock.write_text("0")
    rows = pa.record_batch({"at": pa.array([1] * queues, pa.int32())})
    path = f"{batches}.0"
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_batch(rows)
    trivial = {"clock": clock, "batches": batches, "tasks": 1}
    queries = [
        start(spark_with_trivial, "pyrocket", ours, tmp_path / "ours"),
        start(spark_with_trivial, "trivial", trivial, tmp_path / "trivial"),
    ]

    def trigger(query):
        return durations(query)["triggerExecution"] / 1000

    def of_ours():
        made.send_to_each("T", queues)
        return trigger(queries[0])

    def of_trivial():
        draft = clock.with_suffix(".new")
        draft.write_text(str(int(clock.read_text()) + 1))
        draft.replace(clock)
        return trigger(queries[1])

    name = "trigger over 16 queues beside a trivial source"
    warm_up = 5 if large else 0
    report.rate_share(
        name, lambda: measure(of_ours, of_trivial, pairs, warm_up), 1, "triggers", 1 / 1.5
    )
    for query in queries:
        query.stop()
