"""Routes: several name servers, what they forget, and the addresses of brokers."""

import logging
import time

import pytest
from pyrocket import Credentials, RocketMQCluster
from pyrocket.errors import OptionError, TransportError, UnsupportedError
from pyrocket.remoting import cluster as module
from pyrocket.values.admin import TopicConfig
from support.rocketmq_cluster import rocketmq
from support.rocketmq_server import Fault, RefusedError

SECONDS = 5


@pytest.fixture
def cluster(tmp_path):
    with rocketmq(tmp_path, name_servers=2, brokers=("broker-a", "broker-b")) as cluster:
        for broker in cluster.brokers:
            broker.store.topics.create("t", read_queues=2, write_queues=2)
        yield cluster


@pytest.fixture
def names(cluster):
    names = RocketMQCluster(cluster.addresses, Credentials())
    yield names
    names.close()


def route_of(names, topic="t", **more):
    return names.routes([topic], SECONDS, **more).get(topic)


def requests(cluster):
    return sum(len(server.requests) for server in cluster.name_servers)


def test_a_route_has_all_brokers_of_a_topic(cluster, names):
    route = route_of(names)
    settings = TopicConfig("t", 2, 2)
    assert route.queues == {"broker-a": settings, "broker-b": settings}
    addresses = {name: broker.addresses for name, broker in route.brokers.items()}
    assert addresses == {broker.name: {0: broker.address} for broker in cluster.brokers}
    assert route.brokers == names.live_brokers(SECONDS)


def test_a_slave_is_in_the_route_with_its_id(cluster, names):
    master = cluster.brokers[0]
    slave = cluster.add_slave(master)
    assert route_of(names).brokers["broker-a"].addresses == {0: master.address, 1: slave.address}
    master.kill()
    assert route_of(names, fresh=True).brokers["broker-a"].addresses == {1: slave.address}


def test_a_route_is_asked_for_again_when_it_is_old(cluster, names, monkeypatch):
    monkeypatch.setattr(module, "ROUTE_S", 0.2)
    route_of(names)
    route_of(names)
    assert requests(cluster) == 1
    time.sleep(0.25)
    route_of(names)
    assert requests(cluster) == 2
    route_of(names, fresh=True)
    assert requests(cluster) == 3


def test_several_routes_are_one_flight(cluster, names):
    for server in cluster.name_servers:
        server.delay_s = 0.02
    topics = [f"t{number}" for number in range(20)]
    for topic in topics:
        cluster.brokers[0].store.topics.create(topic)
    assert [*names.routes(topics, SECONDS)] == topics
    assert cluster.flights == 1
    assert names.routes([], SECONDS) == {}
    assert cluster.flights == 1


def test_one_name_server_is_asked_until_it_fails(cluster, names):
    for _ in range(5):
        route_of(names, fresh=True)
    used, other = sorted(cluster.name_servers, key=lambda one: len(one.requests), reverse=True)
    assert (len(used.requests), len(other.requests)) == (5, 0)
    used.kill()
    assert route_of(names, fresh=True)
    assert len(other.requests) == 1
    used.start()
    assert route_of(names, fresh=True)
    assert len(other.requests) == 2


@pytest.mark.parametrize("action", ["silence", "cut", "half", "garbage", RefusedError(2, "busy")])
def test_the_next_name_server_is_asked_after_any_failure(cluster, names, action, caplog):
    before = route_of(names)
    for server in cluster.name_servers:
        server.requests.clear()
        server.faults.append(Fault(action))
    with caplog.at_level(logging.WARNING):
        assert names.routes(["t"], 0.4, fresh=True) == {"t": before}
    assert "no name server has answered: [" in caplog.text
    assert [len(server.requests) for server in cluster.name_servers] == [1, 1]
    names.forget_topic("t")
    cluster.name_servers[0].faults.append(Fault(action))
    assert names.routes(["t"], 2)
    assert names.routes(["t"], 2, fresh=True)


def test_the_last_route_is_used_while_no_name_server_answers(cluster, names, caplog):
    before = route_of(names)
    for server in cluster.name_servers:
        server.kill()
    with caplog.at_level(logging.WARNING):
        assert route_of(names, fresh=True) == before
    assert caplog.text.count("no name server has answered") == 1
    with pytest.raises(TransportError, match="name server at"):
        names.routes(["t", "other"], 1, fresh=True)
    with pytest.raises(TransportError):
        names.live_brokers(1)


def test_a_route_that_is_gone_does_not_mean_that_the_topic_is_gone(cluster, names, caplog):
    """A name server that was restarted knows no broker, and forgets brokers that are restarted."""
    before = route_of(names)
    for server in cluster.name_servers:
        server.forget()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert route_of(names, fresh=True) == before
    assert caplog.text.count("the last known route of the topic t is used") == 1
    assert names.live_brokers(SECONDS) == {}
    cluster.brokers[1].register()
    assert [*route_of(names, fresh=True).brokers] == ["broker-b"]
    names.forget_topic("t")
    cluster.brokers[1].kill()
    assert route_of(names) is None


def test_the_address_of_a_broker_can_be_replaced(cluster):
    """A broker in a container registers an address that only other containers reach."""
    for broker in cluster.brokers:
        broker.registered_as = "172.17.0.2:10911"
    replaced = cluster.brokers[0].address
    own = {"broker-a": replaced}
    names = RocketMQCluster(cluster.addresses, Credentials(), broker_addresses=own)
    expected = {"broker-a": {0: replaced}, "broker-b": {0: "172.17.0.2:10911"}}
    for brokers in (route_of(names).brokers, names.live_brokers(SECONDS)):
        assert {name: broker.addresses for name, broker in brokers.items()} == expected
    names.close()


def test_a_static_topic_is_refused(cluster, names):
    for server in cluster.name_servers:
        server.static_topics.add("t")
    with pytest.raises(UnsupportedError, match="static topic") as caught:
        route_of(names)
    assert caught.value.code == "UNSUPPORTED_TOPIC"


def test_no_name_server_is_refused():
    with pytest.raises(OptionError, match="no name server"):
        RocketMQCluster([], Credentials())


def test_an_answer_that_is_no_route_is_an_error(cluster, names):
    for server in cluster.name_servers:
        server.answer = lambda request: (0, None, b'{"queueDatas":[{"brokerName":1}]}', None)
    with pytest.raises(UnsupportedError, match="cannot be read") as caught:
        route_of(names)
    assert caught.value.code == "PROTOCOL_BROKEN"
    for server in cluster.name_servers:
        server.answer = lambda request: (0, None, b"[1]", None)
    with pytest.raises(UnsupportedError, match="cannot be read"):
        names.topic_names(SECONDS)
