"""A primary is killed under producers, and its replica is promoted, in both directions in turn."""

import random
import signal
import threading
import time

import pytest
from pyrocket import Message, PyrocketError, Store
from pyrocket.client import Producer
from pyrocket.values.message import SendStatus
from support.broker_process import running
from support.commands import run
from support.name_server import wait_until
from support.replicas import log_bytes, published
from support.stores import bodies

pytestmark = pytest.mark.crash

WAIT_S = 60
SYNC = ("--log-file-bytes", "256k", "--sync")
ROUNDS = [1, pytest.param(50, marks=pytest.mark.heavy)]


def promote(path):
    done = run("broker", "promote", path)
    assert done.exit_code == 0, done.output


class Senders:
    """Threads that send numbers to a broker until it dies; `stored` has those with SEND_OK."""

    def __init__(self, address, numbers):
        self.address, self.numbers, self.stored = address, numbers, []
        self.statuses, self.lock = set(), threading.Lock()
        self.threads = [threading.Thread(target=self.run) for _ in range(3)]
        for thread in self.threads:
            thread.start()

    def run(self):
        try:
            with Producer(endpoint=self.address, timeout_ms=5000) as producer:
                while True:
                    with self.lock:
                        number = next(self.numbers)
                    sent = producer.send(Message(topic="t", body=b"%d" % number))
                    self.statuses.add(sent.status)
                    if sent.status is SendStatus.SEND_OK:
                        self.stored.append(number)
        except PyrocketError:
            pass

    def join(self):
        for thread in self.threads:
            thread.join()


def stored(path):
    with Store.open(path, read_only=True) as store:
        return {int(body) for queue in bodies(store).values() for body in queue}


@pytest.mark.parametrize("rounds", ROUNDS)
def test_nothing_acknowledged_is_missing_after_kills_and_promotions(tmp_path, rounds):
    """In some rounds the replica is killed, too, and brought back as the primary."""
    paths, numbers, acknowledged = [tmp_path / "a", tmp_path / "b"], iter(range(10**9)), set()
    rng = random.Random(rounds)
    Store.open(paths[0], create=True).close()
    for number in range(rounds):
        ours, theirs = paths[number % 2], paths[(number + 1) % 2]
        with running(ours, *SYNC) as (primary, at):
            following = ("--replica-of", at.listen[0], *SYNC)
            with running(theirs, *following) as (replica, _):
                senders = Senders(at.listen[0], numbers)
                wait_until(lambda: len(senders.stored) > 50)  # noqa: B023
                time.sleep(rng.random())
                if rng.random() < 0.5:
                    replica.kill()
                    replica.wait()
                primary.kill()
                primary.wait()
                senders.join()
        acknowledged.update(senders.stored)
        assert len(senders.stored) > 50
        assert log_bytes(theirs, 0, min(published(ours), published(theirs))) == log_bytes(
            ours, 0, min(published(ours), published(theirs))
        )
        promote(theirs)
        assert acknowledged <= stored(theirs), f"round {number}"
        with running(ours, *SYNC) as (_, at):  # The earlier primary acknowledges nothing.
            senders = Senders(at.listen[0], numbers)
            wait_until(lambda: senders.statuses)  # noqa: B023
        senders.join()
        assert senders.statuses == {SendStatus.SLAVE_NOT_AVAILABLE}


def test_what_a_query_lost_is_the_difference_of_the_logs(tmp_path):
    """Without `sync`, the replica is suspended while the primary goes on."""
    ours, theirs = tmp_path / "a", tmp_path / "b"
    with running(ours) as (primary, at), running(theirs, "--replica-of", at.listen[0]) as both:
        replica = both[0]
        with Producer(endpoint=at.listen[0]) as producer:
            send(producer, range(100))
            wait_until(lambda: published(theirs) == published(ours))
            replica.send_signal(signal.SIGSTOP)
            time.sleep(0.5)
            send(producer, range(100, 130))
            primary.kill()
            primary.wait()
            replica.send_signal(signal.SIGCONT)
    with Store.open(ours, read_only=True) as store:
        read, epoch = store.offsets("t"), store.history.epoch
    promote(theirs)
    lost = stored(ours) - stored(theirs)
    assert lost
    with Store.open(theirs, read_only=True) as store:
        cuts = {queue: store.history.cut_since(epoch, "t", queue) for queue in read}
    assert sum(read[queue].maximum - cuts[queue] for queue in read) == len(lost)


def send(producer, numbers):
    for number in numbers:
        assert producer.send(Message(topic="t", body=b"%d" % number)).status is SendStatus.SEND_OK
