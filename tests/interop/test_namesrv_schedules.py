"""Random schedules of faults in clusters of Java's servers; see `support.namesrv_schedules`."""

import shutil
from contextlib import ExitStack
from functools import partial

import pytest
from interop.rocketmq import NameServer, free_ports
from pyrocket import Credentials, Message, RocketMQCluster
from pyrocket.errors import DataLossError
from pyrocket.remoting.calls import CallKind
from pyrocket.values.admin import TopicConfig
from support.cutting_proxy import cutting
from support.namesrv_schedules import Schedule
from support.remoting_contract import Client, eventually
from support.transports import disconnect

delete_topic = CallKind(215, "to delete the topic {topic!r}", lambda answer: None, "topic")


class KilledServer(NameServer):
    """The name server of a schedule, which forgets only when it is killed."""

    def __init__(self, java, folder):
        super().__init__(java.classes, folder)
        self.faults = []

    def forget(self):
        pass


class Faults(list):
    """The faults of a broker: a passing one cuts its connections."""

    def __init__(self, broker):
        super().__init__()
        self.broker = broker

    def append(self, fault):
        self.broker.proxy.cut()


class JavaBroker:
    """A broker of a schedule: its connections lead through a proxy, and it stands for its store.

    Attributes:
        expired: Always 0: a broker deletes whole files of its log, which no schedule fills.
    """

    expired = 0

    def __init__(self, made, name, stack):
        self.made, self.name, self.folder = made, name, made.folder / name
        self.port, self.queues, self.faults = free_ports(), {}, Faults(self)
        self.proxy = stack.enter_context(cutting(f"127.0.0.1:{self.port}", every=0))
        self.store = self.topics = self
        self.start()

    def start(self):
        servers = ";".join(self.made.addresses)
        own = {"brokerName": self.name, "listenPort": self.port, "namesrvAddr": servers}
        own |= {"registerNameServerPeriod": 10_000, "haListenPort": self.port + 1}
        self.program = self.made.java.broker(self.folder, **own)
        self.program.port = self.port
        self.program.await_start()
        self.client, self.is_alive = Client(self.made.addresses[:1], self.name), True

    def kill(self):
        self.is_alive = False
        self.client.close()
        self.program.kill()

    def register(self):
        """Register the topics now; by itself, a broker does it every ten seconds."""
        if self.is_alive:
            for topic, queues in self.queues.items():
                self.update(topic, read_queues=queues, write_queues=queues)

    def create(self, topic, **queues):
        self.update(topic, **queues)

    def get(self, topic):
        return TopicConfig(topic, self.queues[topic], self.queues[topic])

    def update(self, topic, *, read_queues, write_queues):
        """Change the topic, and wait until the live name servers know it."""
        self.queues[topic] = write_queues
        self.client.create(topic, read_queues, write_queues)
        for names in self.made.live_name_servers():
            eventually(lambda names=names: self._is_known(topic, names))
            names.close()

    def _is_known(self, topic, names):
        route = names.routes([topic], 5, fresh=True).get(topic)
        return route and route.queues.get(self.name) == self.get(topic)

    def append(self, message):
        self.client.send(message.topic, message.body, queue_id=message.queue_id)


class JavaCluster:
    """A name server, that of the peer, and two brokers."""

    def __init__(self, java, folder, stack):
        self.java, self.folder = java, folder
        self.name_servers = [KilledServer(java, folder)]
        ports = (java.peer.port, self.name_servers[0].port)
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.brokers = [JavaBroker(self, name, stack) for name in "ab"]

        proxies = ",".join(f"{broker.name}={broker.proxy.address}" for broker in self.brokers)
        self.options = {"brokerAddresses": proxies, "endpoint.timeout": "6s"}

    def live_name_servers(self):
        """Return each name server that is alive, to be asked alone."""
        alive = [True, self.name_servers[0].is_alive]
        addresses = [each for each, lives in zip(self.addresses, alive, strict=True) if lives]
        return [RocketMQCluster([each], Credentials()) for each in addresses]


@pytest.fixture(scope="module")
def cluster(java_version, tmp_path_factory):
    with ExitStack() as stack:
        made = JavaCluster(java_version, tmp_path_factory.mktemp("schedules"), stack)
        yield made
        for server in (*made.brokers, *made.name_servers):
            server.kill()


@pytest.fixture
def made(cluster):
    """The cluster, whose servers are all alive."""
    for server in (*cluster.name_servers, *cluster.brokers):
        if not server.is_alive:
            server.start()
    for broker in cluster.brokers:
        broker.queues.clear()
    yield cluster
    disconnect()


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(15))
def test_each_message_is_read_once_or_its_loss_is_named(made, seed):
    schedule = Schedule(made, seed, f"t{seed}", **made.options)
    schedule.run(schedule.kill_or_start, schedule.expand)
    schedule.finish()


def _send(broker, topic, *bodies):
    for body in bodies:
        broker.append(Message(topic=topic, body=body.encode(), queue_id=0))


def read(schedule):
    """Return the bodies of the next micro-batch."""
    end = schedule.reader.latestOffset(schedule.position, None)
    tasks = schedule.reader.partitions(schedule.position, end)
    schedule.position = end
    batches = [batch for task in tasks for batch in schedule.reader.read(task)]
    return sorted(body.decode() for batch in batches for body in batch["body"].to_pylist())


def promotion(broker, topic, send):
    """Send messages, and lose them, as if a slave that lacks them had become the master."""
    broker.kill()
    copy = shutil.copytree(broker.folder, broker.folder.with_name("copy"))
    broker.start()
    yield send()
    broker.kill()
    shutil.rmtree(broker.folder)
    copy.rename(broker.folder)
    broker.start()
    yield


def deletion(broker, topic, send):
    """Send messages, and lose them with their topic, which is created again."""
    yield send()
    broker.client.one(delete_topic(topic))
    broker.create(topic, read_queues=2, write_queues=2)
    yield


@pytest.mark.heavy
@pytest.mark.parametrize("newer", [0, 1, 4, 5])
@pytest.mark.parametrize("lose", [promotion, deletion])
def test_messages_that_a_broker_has_lost_are_named(made, lose, newer):
    """Whether fewer, as many or more messages follow than were lost."""
    topic, broker = f"{lose.__name__}-{newer}", made.brokers[0]
    schedule, send = Schedule(made, 0, topic, **made.options), partial(_send, broker, topic)
    send("first")
    losing = lose(broker, topic, partial(send, *"xyz"))
    next(losing)
    assert read(schedule) == ["first", *"xyz"]
    next(losing)
    send(*"12345"[:newer])
    schedule.restart()
    with pytest.raises(DataLossError) as caught:
        schedule.reader.latestOffset(schedule.position, None)
    schedule.restart("skip")
    noticed = lose is promotion or newer > 0  # Otherwise only that the queue is too short.
    assert caught.value.code == ("LOG_TRUNCATED" if noticed else "OFFSET_OUT_OF_RANGE")
    assert read(schedule) == [*"12345"[: newer * noticed]]
    send("last")
    assert read(schedule) == ["last"]
    schedule.restart()
    assert read(schedule) == []
