"""Schedules of faults in a cluster of RocketMQ: a query reads each message once, or names what was
lost; a fault that passes is never a loss.
"""

import random

import pytest
from pyrocket import Message
from pyrocket.errors import DataLossError, TransportError
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns

from support.rocketmq_server import Fault
from support.transports import disconnect

SCHEMA = default_columns(kafka=False, headers=False, text=False)
STEPS, QUEUES = 14, 2
PASSING = ("cut", "lose", "half")


class Schedule:
    """A cluster, what was written to it, and a query with what it has read.

    Attributes:
        written: Broker and queue id → the bodies, by offset.
        read: Broker and queue id → the offset that the query reads next.
    """

    def __init__(self, made, seed, topic="t", **options):
        self.made, self.rng, self.topic = made, random.Random(seed), topic
        self.options = {"endpoint.timeout": "2s"} | options
        self.dead, self.count = [], 0
        self.written, self.read, self.rows = {}, {}, []
        for broker in made.brokers:
            broker.store.topics.create(topic, read_queues=QUEUES, write_queues=QUEUES)
        self.reader = self.new_reader()
        self.position = self.reader.initialOffset()

    def new_reader(self, policy="fail"):
        given = {
            "namesrv": ";".join(self.made.addresses),
            "topic": self.topic,
            "onDataLoss": policy,
        }
        given |= {"startingOffsets": "earliest", **self.options}
        return DefaultSource(given).streamReader(SCHEMA)

    def restart(self, policy="fail"):
        """Continue from the checkpoint, as another process: without connections and routes."""
        self.reader.stop()
        disconnect()
        self.reader = self.new_reader(policy)

    def live(self):
        return [broker for broker in self.made.brokers if broker not in self.dead]

    def append(self):
        if not self.live():
            return
        broker = self.rng.choice(self.live())
        topic = broker.store.topics.get(self.topic)
        for _ in range(self.rng.randrange(1, 6)):
            queue, body = self.rng.randrange(topic.write_queues), f"m{self.count}"
            self.count += 1
            broker.store.append(Message(topic=self.topic, body=body.encode(), queue_id=queue))
            self.written.setdefault((broker.name, queue), []).append(body)

    def passing_fault(self):
        server = self.rng.choice([*self.made.name_servers, *self.live()])
        if server not in self.dead:
            server.faults.append(Fault(self.rng.choice(PASSING), count=self.rng.randrange(1, 3)))

    def kill_or_start(self):
        """Kill a server, or start it again; a name server comes back empty."""
        server = self.rng.choice([*self.made.name_servers, *self.made.brokers])
        if server in self.dead:
            server.start()
            self.dead.remove(server)
        else:
            server.faults.clear()
            server.kill()
            self.dead.append(server)
        for name_server in self.made.name_servers:
            name_server.forget()
        for broker in self.live():
            if broker in self.made.brokers:
                broker.register()

    def expand(self):
        topics = self.rng.choice(self.made.brokers).store.topics
        queues = topics.get(self.topic).read_queues + 1
        topics.update(self.topic, read_queues=queues, write_queues=queues)

    def expire(self):
        self.rng.choice(self.made.brokers).expired += self.rng.randrange(1, 4)

    def expired(self):
        return {broker.name: broker.expired for broker in self.made.brokers}

    def known(self):
        """Return the bodies of the queues in the checkpoint; others begin at their first message.

        A query may notice new queues later.
        """
        queues = self.position["offsets"][self.topic]
        written = self.written.items()
        return {key: bodies for key, bodies in written if str(key[1]) in queues[key[0]]}

    def lost(self, queues):
        """Return whether messages of these queues expired before the query has read them."""
        expired = self.expired()
        return any(
            min(expired[key[0]], len(bodies)) > self.read.get(key, 0)
            for key, bodies in queues.items()
        )

    def left(self):
        """Return what the query has to read: what was written and has not expired."""
        expired = self.expired()
        return {
            key: bodies[max(self.read.get(key, 0), expired[key[0]]) :]
            for key, bodies in self.written.items()
        }

    def run(self, *rare):
        """Take random steps, of which those of `rare` are less frequent; then all servers live."""
        steps = [self.append, self.micro_batch, self.restart, self.passing_fault]
        for _ in range(STEPS):
            self.rng.choice([*steps, *steps, self.append, self.micro_batch, *rare])()
        self.heal()

    def finish(self):
        """Read what is left; messages that were lost are first named, and then skipped."""
        self.restart()
        if self.lost(self.known()):
            with pytest.raises(DataLossError, match="OFFSET_OUT_OF_RANGE"):
                self.reader.latestOffset(self.position, None)
            self.restart("skip")
        self.micro_batch("skip")
        assert not any(self.left().values())
        self.reader.stop()
        disconnect()

    def micro_batch(self, policy="fail"):
        """Run a micro-batch: it fails only if a broker is dead or messages are lost."""
        try:
            end = self.reader.latestOffset(self.position, None)
            tasks = self.reader.partitions(self.position, end)
            batches = [batch for task in tasks for batch in self.reader.read(task)]
        except (TransportError, DataLossError) as error:
            passes = isinstance(error, TransportError)
            if not (
                self.dead
                if passes
                else self.lost(self.written) and error.code == "OFFSET_OUT_OF_RANGE"
            ):
                raise
            return
        assert policy == "skip" or not self.lost(self.known()), (
            "messages were lost without an error"
        )
        self.check([row for batch in batches for row in batch.to_pylist()])
        self.position = end

    def check(self, rows):
        """The rows are what is left, and all of the queues that the query notices."""
        read = {}
        for row in sorted(rows, key=lambda row: row["queueOffset"]):
            read.setdefault((row["brokerName"], row["queueId"]), []).append(row["body"].decode())
        known = self.known().keys() | read.keys()
        left = {key: bodies for key, bodies in self.left().items() if bodies and key in known}
        assert read == left
        self.read |= {key: len(self.written[key]) for key in known}

    def heal(self):
        for server in [*self.dead]:
            server.start()
        self.dead.clear()
        for server in (*self.made.name_servers, *self.made.brokers):
            server.faults.clear()
        for broker in self.made.brokers:
            broker.register()
