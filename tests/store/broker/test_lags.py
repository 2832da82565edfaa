"""`Broker.lags`: the lags of groups that consume by pops, by pulls, or by both."""

import pytest
from pyrocket import Message, Store
from pyrocket.broker.broker import Broker
from pyrocket.values.consuming import ConsumerData, Heartbeat, MessageModel, Pull, Subscription
from pyrocket.values.message import MessageQueue
from support.stores import SMALL


@pytest.fixture
def broker(tmp_path):
    store = Store.open(tmp_path / "s", create=True, config=SMALL)
    for topic in ("t", "u"):
        store.topics.create(topic, read_queues=1, write_queues=1)
        for _ in range(4):
            store.append(Message(topic=topic, body=b"1"))
    store.groups.create("g")
    broker = Broker(store)
    yield broker
    broker.close()


def lags(broker):
    """Return group, topic and is_retry → messages in flight, and messages never delivered."""
    return {
        (one.group, one.topic, one.is_retry): (
            sum(queue.in_flight for queue in one.queues),
            sum(queue.ready for queue in one.queues),
        )
        for one in broker.lags()
    }


def join(broker, group="g"):
    data = ConsumerData(group, MessageModel.CLUSTERING, "last", {"t": Subscription()})
    broker.consumers.heartbeat(Heartbeat("c", "c", [data]))


def pull(broker, offset, group="g"):
    queue = MessageQueue("t", broker.store.broker_name, 0)
    broker.consumers.pulls.pull(Pull(queue, group, offset, Subscription(), 32))


def test_pops_and_committed_offsets_of_one_group_are_reported_once_for_each_topic(broker):
    assert len(broker.pop.receive("g", "t", max_messages=3).messages) == 3
    broker.store.groups.commit("g", "t", {0: 0})
    broker.store.groups.commit("g", "u", {0: 1})
    found = [(one.group, one.topic, one.is_retry) for one in broker.lags()]
    assert len(found) == len({*found})
    assert lags(broker) == {
        ("g", "t", False): (3, 1),
        ("g", "t", True): (0, 0),
        ("g", "u", False): (0, 3),
    }


def test_a_group_with_live_members_is_reported_by_its_pulls(broker):
    broker.pop.receive("g", "t", max_messages=3)
    join(broker)
    broker.store.groups.commit("g", "t", {0: 1})
    pull(broker, 2)
    assert lags(broker) == {("g", "t", False): (1, 2)}


def test_messages_in_flight_end_at_the_last_pull_which_may_move_back(broker):
    broker.store.groups.commit("g", "t", {0: 1})
    assert lags(broker)["g", "t", False] == (0, 3)
    pull(broker, 4)
    assert lags(broker)["g", "t", False] == (3, 0)
    pull(broker, 2)
    assert lags(broker)["g", "t", False] == (1, 2)
    broker.store.groups.commit("g", "t", {0: 3})
    assert lags(broker)["g", "t", False] == (0, 1)


def test_a_group_that_is_deleted_and_created_again_has_no_messages_in_flight(broker):
    broker.store.groups.commit("g", "t", {0: 1})
    pull(broker, 4)
    broker.delete_group("g")
    assert lags(broker) == {}
    broker.store.groups.commit("g", "t", {0: 1})
    assert lags(broker) == {("g", "t", False): (0, 3)}
