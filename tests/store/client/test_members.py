"""Each consumer is a member of its own, also beside others in one process."""

from collections import Counter
from threading import Lock

import pytest
from pyrocket import Message, Store
from pyrocket.client.instance import Instance
from pyrocket.client.pull_consumer import PullConsumer
from pyrocket.client.push_consumer import PushConsumer
from pyrocket.client.results import ConsumeResult
from support.name_server import wait_until


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "store"
    with Store.open(folder, create=True) as store:
        store.topics.create("orders", read_queues=4, write_queues=4)
    return str(folder)


class Listener:
    def __init__(self):
        self.bodies, self._lock = Counter(), Lock()

    def __call__(self, messages):
        with self._lock:
            self.bodies.update(message.body for message in messages)
        return ConsumeResult.SUCCESS


def consumer(at, listener, **settings):
    given = {"subscriptions": {"orders": "*"}, "consume_from": "first", **settings}
    return PushConsumer("billing", **at, listener=listener, **given)


def queues(running):
    return [queue for queue in running.queues() if queue.topic == "orders"]


def test_consumers_of_one_group_in_one_process_share_its_queues(path, at):
    listener = Listener()
    with consumer(at, listener) as first, consumer(at, listener) as second:
        assert second.client_id == f"{first.client_id}#2"
        wait_until(lambda: [len(queues(first)), len(queues(second))] == [2, 2])
        with Store.open(path) as store:
            for number in range(40):
                store.append(Message(topic="orders", body=b"%d" % number, queue_id=number % 4))
        wait_until(lambda: sum(listener.bodies.values()) >= 40)
    assert listener.bodies == Counter({b"%d" % number: 1 for number in range(40)})


def test_an_id_is_used_again_when_its_consumer_is_closed(path, at):
    with consumer(at, Listener()) as first:
        with consumer(at, Listener()) as second:
            assert second.client_id.endswith("#2")
        with consumer(at, Listener()) as third:
            assert third.client_id.endswith("#2")
        with PullConsumer("reports", **at) as other:
            assert other.client_id == first.client_id


def test_broadcasting_consumers_of_one_process_have_files_of_their_own(
    path, at, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    with Store.open(path) as store:
        store.append(Message(topic="orders", body=b"1", queue_id=0))
    listeners = [Listener(), Listener()]
    broadcasting = {"message_model": "BROADCASTING"}
    with consumer(at, listeners[0], **broadcasting), consumer(at, listeners[1], **broadcasting):
        wait_until(lambda: all(one.bodies == {b"1": 1} for one in listeners))
    folders = sorted(
        one.name.partition("@")[2] for one in (tmp_path / ".rocketmq_offsets").iterdir()
    )
    assert folders == ["DEFAULT", "DEFAULT#2"]


def test_the_first_consumer_of_each_group_has_the_id_of_its_instance():
    instance = Instance()
    try:
        first, second = instance.join("a"), instance.join("a")
        assert (first.client_id, instance.join("b").client_id) == (instance.client_id,) * 2
        assert second.client_id == f"{instance.client_id}#2"
        assert first.incarnation != second.incarnation
    finally:
        instance._close()
