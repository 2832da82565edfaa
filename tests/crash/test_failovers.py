"""Primaries are killed one after the other under producers, a group and a query over name servers;
each time the replica is promoted, and the killed one becomes its replica.
"""

import random
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

import pytest
from crash.seeds import SEED
from crash.test_killed_primaries import promote, stored
from pyrocket import Message, PyrocketError, Store
from pyrocket.client import ConsumeFrom, ConsumeResult, Producer, PushConsumer
from pyrocket.tools.verify.verify import verify
from pyrocket.values.message import SendStatus
from support import name_server
from support.broker_process import start, wait_until_it_serves
from support.transports import disconnect

pytestmark = pytest.mark.crash

FLAGS = ("--listen", "127.0.0.1:0", "--log-level", "error", "--log-file-bytes", "256k", "--sync")
FIRST, WAIT_S = ConsumeFrom.FIRST, 300


def wait_for(condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class Duo:
    """A primary and its replica as processes, which a name server knows."""

    def __init__(self, folder, servers):
        self.paths, self._servers = [folder / "a", folder / "b"], ("--nameserver", servers)
        with Store.open(self.paths[0], create=True) as store:
            store.topics.create("t", read_queues=3, write_queues=3)
            store.groups.create("g")
        self.start()

    def start(self):
        """Start the first directory's broker as the primary, and the second one's as replica."""
        self.processes = []
        address = self._begin(self.paths[0])
        self._begin(self.paths[1], "--replica-of", address)

    def _begin(self, path, *more):
        self.processes.append(start(path, *FLAGS, *self._servers, *more))
        return wait_until_it_serves(self.processes[-1], path).listen[0]

    def fail_over(self, senders, kills_both):
        """Kill the primary, promote the replica, and start both with changed roles."""
        primary, replica = self.processes
        if kills_both:
            replica.kill()
        primary.kill()
        self.stop()
        promote(self.paths[1])
        assert {*senders.acknowledged} <= stored(self.paths[1])
        self.paths.reverse()
        self.start()

    def stop(self):
        for process in self.processes:
            process.terminate()
            process.communicate()


class Senders:
    """Threads that send numbers, whatever happens; `acknowledged` has those with SEND_OK."""

    def __init__(self, servers, number=3):
        self._servers, self._numbers, self._stopping = servers, count(), threading.Event()
        self.acknowledged, self._lock = [], threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(number)]

    def _run(self):
        with Producer(endpoint=self._servers, timeout_ms=5000) as producer:
            while not self._stopping.wait(0.005):
                with self._lock:
                    number = next(self._numbers)
                with suppress(PyrocketError):
                    sent = producer.send(Message(topic="t", body=b"%d" % number))
                    if sent.status is SendStatus.SEND_OK:
                        self.acknowledged.append(number)

    @contextmanager
    def running(self):
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in self._threads:
                thread.join()


@contextmanager
def consuming(servers):
    """Run a member of the group; yield how often it got each number."""
    seen = Counter()

    def listen(messages):
        seen.update(int(message.body) for message in messages)
        return ConsumeResult.SUCCESS

    with PushConsumer(
        "g", endpoint=servers, subscriptions={"t": "*"}, listener=listen, consume_from=FIRST
    ):
        yield seen


def records(path):
    """Return the messages of a store: number, queue, offset, and when it was stored.

    A send that is repeated after a lost reply stores its number twice.
    """
    with Store.open(path, read_only=True) as store:
        return {
            (int(one.body), queue_id, one.queue_offset, one.store_timestamp)
            for queue_id, has in store.offsets("t").items()
            for one in store.messages("t", queue_id, has.minimum, has.maximum)
        }


COLUMNS = "body STRING, queueId INT, queueOffset LONG, storeTimestamp TIMESTAMP"
RECORD = ("CAST(body AS INT)", "queueId", "queueOffset", "unix_millis(storeTimestamp)")


class Query:
    """A query that collects messages by micro-batch; a micro-batch that is repeated counts once."""

    def __init__(self, spark, servers, checkpoint):
        self._batches = {}
        rows = (
            spark.readStream.format("pyrocket")
            .schema(COLUMNS)
            .options(
                **{"endpoint": servers, "endpoint.timeout": "120s", "onDataLoss": "skip"},
                topic="t",
                startingOffsets="earliest",
            )
        )
        writer = rows.load().writeStream.foreachBatch(self._take)
        self._query = writer.option("checkpointLocation", str(checkpoint)).start()

    def _take(self, rows, number):
        self._batches[number] = [tuple(row) for row in rows.selectExpr(*RECORD).collect()]

    def has_begun(self):
        return bool(self._batches)

    def records(self):
        """Return how often each message was read, as `records` describes it."""
        return Counter(record for batch in self._batches.values() for record in batch)

    def check(self):
        assert self._query.isActive, self._query.exception()

    def end(self):
        self._query.processAllAvailable()
        self._query.stop()


def run(tmp_path, rounds, spark=None):
    """Fail over in each round, and check what the group and the query got."""
    rng = random.Random(f"{SEED}/{rounds}")
    with ExitStack() as stack:
        _, servers = stack.enter_context(name_server.running())
        duo, senders = Duo(tmp_path, servers), Senders(servers)
        stack.callback(lambda: duo.stop())
        stack.callback(disconnect)
        query = spark and Query(spark, servers, tmp_path / "checkpoint")
        seen = stack.enter_context(consuming(servers))
        with senders.running():
            wait_for(lambda: not query or query.has_begun())
            for number in range(rounds):
                sys.stdout.write(f"round {number}: {len(senders.acknowledged)} acknowledged\n")
                sys.stdout.flush()
                known = len(senders.acknowledged)
                wait_for(lambda: len(senders.acknowledged) > known + 50)  # noqa: B023
                time.sleep(rng.random())
                duo.fail_over(senders, kills_both=rng.random() < 0.3)
                if query:
                    query.check()
            known = len(senders.acknowledged)
            wait_for(lambda: len(senders.acknowledged) > known + 50)
        wait_for(lambda: seen.keys() >= {*senders.acknowledged})
        if query:
            query.end()
        final, whole = stored(duo.paths[0]), records(duo.paths[0])
        wait_for(lambda: seen.keys() >= final)  # The group skips nothing.
    sys.stdout.write(f"{rounds} rounds: {len(senders.acknowledged)} acknowledged\n")
    assert {*senders.acknowledged} <= final
    assert verify(duo.paths[0]).ok
    if query:
        read = query.records()
        assert whole - read.keys() == set(), "the query skips nothing"
        assert [record for record, times in read.items() if times > 1] == []
        sys.stdout.write(f"{len(read.keys() - whole)} read before they were lost\n")


@pytest.mark.heavy
@pytest.mark.parametrize("rounds", [2, 50])
def test_producers_and_a_group_go_on_after_each_promotion(tmp_path, rounds):
    run(tmp_path, rounds)


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.parametrize("rounds", [2, 50])
def test_a_query_goes_on_after_each_promotion(spark, tmp_path, rounds):
    run(tmp_path, rounds, spark)
