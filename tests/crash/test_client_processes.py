"""Consumers lose no message when members, brokers and name servers are killed."""

import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from pyrocket import Store, StoreConfig
from support import broker_process, name_server
from support.client_processes import (
    GROUP,
    TOPIC,
    check_order,
    processes,
    stop,
    suspended,
    wait_until_consumed,
    wait_until_registered,
    wait_until_sent,
)
from support.name_server import wait_until

pytestmark = pytest.mark.crash
QUEUES = 8


def new_store(path, name="broker-a", *, ordered=False):
    with Store.open(path, create=True, config=StoreConfig(broker_name=name)) as store:
        store.topics.create(TOPIC, read_queues=QUEUES, write_queues=QUEUES, ordered=ordered)
        store.groups.create(GROUP)
    return path


def everything_is_committed(path):
    """Whether the committed offsets of the group are the ends of the queues."""
    with Store.open(path, read_only=True) as store:
        ends = {number: store.max_offset(TOPIC, number) for number in range(QUEUES)}
        return store.groups.committed(GROUP, TOPIC) == ends


class Members:
    """The consumers of one group, each with a file of its own."""

    def __init__(self, begin, endpoint, folder, **settings):
        self._begin, self._endpoint, self._folder = begin, endpoint, folder
        self._settings = settings
        self.files, self.live = [], []

    def add(self, count=1):
        """Start members."""
        for _ in range(count):
            file = self._folder / f"consumer-{len(self.files)}"
            process = self._begin("consume", self._endpoint, file, **self._settings)
            self.files.append(file)
            self.live.append((process, file))

    def wait_until_started(self):
        for _, file in self.live:
            wait_until(Path(f"{file}.started").exists)

    def kill(self, number):
        process, _ = self.live.pop(number)
        process.kill()
        process.wait(30)

    def stop(self):
        self.wait_until_started()
        for process, _ in self.live:
            stop(process)


# The queues of an orderly member that was killed are locked for a minute.
@pytest.mark.parametrize(
    ("count", "kills", "batch", "orderly"),
    [
        (1200, 3, 20, False),
        pytest.param(3000, 4, 20, True, marks=pytest.mark.heavy),
        pytest.param(100_000, 20, 100, False, marks=pytest.mark.heavy),
        pytest.param(100_000, 20, 100, True, marks=pytest.mark.heavy),
    ],
)
def test_killed_members_and_a_killed_broker_lose_no_message(tmp_path, count, kills, batch, orderly):
    """Members are killed at any moment and replaced; late, the broker is killed and restarted."""
    path, sent = new_store(tmp_path / "store"), tmp_path / "sent"
    random = Random(f"{count} {orderly}")
    last = count * 2 // 3
    # The first kills come before the first commit, which is made after five seconds.
    moments = [0, count // 50, *sorted(random.sample(range(last), kills - 2))]
    settings = {"orderly": orderly, "consume_message_batch_max_size": batch}
    with ExitStack() as stack:
        begin = stack.enter_context(processes())
        broker, found = stack.enter_context(broker_process.running(path))
        (address,) = found.listen
        members = Members(begin, address, tmp_path, **settings)
        members.add(3)
        members.wait_until_started()
        producer = begin("produce", address, sent, batch=batch, pause_s=0.05)
        for moment in moments:
            wait_until_sent(sent, moment)
            members.kill(random.randrange(3))
            members.add()
        members.wait_until_started()  # A start fails while there is no broker.
        wait_until_sent(sent, last)
        broker.kill()
        broker.wait(30)
        with broker_process.running(path, "--listen", address):
            wait_until_sent(sent, count)
            stop(producer)
            wait_until_consumed(sent, members.files)
            wait_until(lambda: everything_is_committed(path), 120)
            members.stop()
    if orderly:
        check_order(members.files, "queue")
    assert everything_is_committed(path)


class Cluster:
    """Two name servers and two brokers of an ordered topic."""

    def __init__(self, stack, folder):
        self._stack, self._folder = stack, folder
        running = [stack.enter_context(name_server.running()) for _ in range(2)]
        self.servers = [process for process, _ in running]
        self._ports = [address.rpartition(":")[2] for _, address in running]
        self.endpoint = ",".join(address for _, address in running)
        self.brokers, self._listen = {}, {}
        for name in ("broker-a", "broker-b"):
            new_store(folder / name, name, ordered=True)
            self._start_broker(name, "127.0.0.1:0")
        for _, address in running:
            wait_until_registered(address, *self.brokers)

    def _start_broker(self, name, listen):
        flags = ["--listen", listen, "--nameserver", self.endpoint]
        running = broker_process.running(self._folder / name, *flags)
        self.brokers[name], found = self._stack.enter_context(running)
        (self._listen[name],) = found.listen

    def restart_broker(self, name, pause_s):
        """Kill a broker, and start it again after a pause."""
        _kill(self.brokers[name])
        time.sleep(pause_s)
        self._start_broker(name, self._listen[name])

    def restart_server(self, number, pause_s):
        """Kill a name server, and start it again after a pause."""
        _kill(self.servers[number])
        time.sleep(pause_s)
        running = name_server.running(port=self._ports[number])
        self.servers[number], _ = self._stack.enter_context(running)

    def message_counts(self):
        """Return how many messages each broker has stored."""
        counts = {}
        for name in self.brokers:
            with Store.open(self._folder / name, read_only=True) as store:
                counts[name] = sum(one.maximum for one in store.offsets(TOPIC).values())
        return counts


def _kill(process):
    process.kill()
    process.wait(30)


@pytest.mark.parametrize(
    ("count", "batch", "down_s", "frozen_s", "orderly"),
    [
        pytest.param(3200, 20, 2, 5, True, marks=pytest.mark.heavy),
        pytest.param(3200, 20, 2, 5, False, marks=pytest.mark.heavy),
        pytest.param(100_000, 100, 5, 60, True, marks=pytest.mark.heavy),
        pytest.param(100_000, 100, 5, 60, False, marks=pytest.mark.heavy),
    ],
)
def test_killed_and_frozen_brokers_and_name_servers_lose_no_message_and_no_order(
    tmp_path, count, batch, down_s, frozen_s, orderly
):
    """Every message has one of 16 keys. A key's messages stay at one broker."""
    sent = tmp_path / "sent"
    settings = {"orderly": orderly, "consume_message_batch_max_size": batch}
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path)
        begin = stack.enter_context(processes())
        members = Members(begin, cluster.endpoint, tmp_path, **settings)
        members.add(3)
        members.wait_until_started()
        paced = {"batch": batch, "pause_s": 0.5, "timeout_ms": 3000}
        producer = begin("produce", cluster.endpoint, sent, keys=16, **paced)
        wait_until_sent(sent, count // 20)
        cluster.restart_broker("broker-a", down_s)
        cluster.restart_server(0, down_s)
        with suspended(cluster.brokers["broker-b"]):
            time.sleep(frozen_s)
        with suspended(cluster.servers[1]):
            time.sleep(frozen_s)
        assert [one.poll() for one in cluster.brokers.values()] == [None, None], "both brokers run"
        wait_until_sent(sent, count)
        stop(producer)
        wait_until_consumed(sent, members.files)
    assert all(cluster.message_counts().values()), "each broker has messages"
    if orderly:
        check_order(members.files, "key")
