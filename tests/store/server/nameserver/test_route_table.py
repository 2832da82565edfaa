"""The route table of a name server, on a simulated clock."""

from dataclasses import replace

import pytest
from pyrocket.base.arguments import check_advertised, parse_address
from pyrocket.errors import PyrocketError
from pyrocket.server.nameserver.route_table import EXPIRY_S, RouteTable
from pyrocket.values.routes import BrokerData, QueueData, Registration, Route, TopicData

ORDERS, CLICKS = TopicData("orders", 4, 2, 6), TopicData("clicks", 1, 1, 4, message_type="FIFO")


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    return RouteTable(clock)


def registration(broker="a", *topics, address="", broker_id=0, version=1, cluster="c", store=""):
    address = address or f"{broker}.example:8081"
    topics = topics or (ORDERS,)
    return Registration(cluster, broker, broker_id, address, version, topics, store)


def brokers_of(table, topic="orders"):
    return [broker.name for broker in table.routes([topic])[0].brokers]


def code(work, *arguments):
    with pytest.raises(PyrocketError) as caught:
        work(*arguments)
    return caught.value.code


def test_a_route_has_one_entry_per_broker_and_topic_and_the_addresses_by_id(table):
    table.register(registration("b", ORDERS), "1")
    table.register(registration("a", ORDERS, CLICKS, version=7), "2")
    table.register(registration("a", ORDERS, broker_id=1, address="a1.example:8081"), "3")
    orders, clicks = table.routes(["orders", "clicks"])
    assert orders.queues == [QueueData("a", ORDERS), QueueData("b", ORDERS)]
    assert clicks.queues == [QueueData("a", CLICKS)]
    a = BrokerData("c", "a", {0: "a.example:8081", 1: "a1.example:8081"}, 7)
    assert orders.brokers == [a, BrokerData("c", "b", {0: "b.example:8081"}, 1)]
    assert clicks.brokers == [a]


def test_the_route_of_a_topic_without_a_live_broker_is_empty(table):
    (route,) = table.routes(["orders"])
    assert (route.topic, route.queues, route.brokers) == ("orders", [], [])
    table.register(registration(), "1")
    table.register(registration("a", CLICKS, version=2), "1")
    assert brokers_of(table) == []


def test_the_queues_of_an_ordered_topic_remain_while_their_broker_is_gone(table, clock):
    ordered = TopicData("orders", 2, 2, 6, ordered=True)
    table.register(registration("a", ordered), "1")
    table.register(registration("b", ordered), "2")
    table.disconnect("1")
    (route,) = table.routes(["orders"])
    assert route.queues == [QueueData("b", ordered)]
    assert route.gone == [QueueData("a", ordered)]
    table.register(registration("a", ordered), "3")
    assert table.routes(["orders"])[0].gone == []
    table.register(registration("a", CLICKS, version=2), "3")
    table.disconnect("3")
    assert table.routes(["orders"])[0].gone == []
    clock.seconds += EXPIRY_S
    assert table.routes(["orders"])[0] == Route("orders")


def test_a_broker_expires_120_s_after_its_last_registration(table, clock):
    table.register(registration("a"), "1")
    table.register(registration("b"), "2")
    clock.seconds += EXPIRY_S - 1
    table.register(registration("b"), "2")
    assert brokers_of(table) == ["a", "b"]
    clock.seconds += 1
    assert brokers_of(table) == ["b"]
    assert EXPIRY_S == 120


def test_a_broker_is_removed_when_its_connection_closes(table):
    table.register(registration("a"), "1")
    table.register(registration("b"), "2")
    table.disconnect("1")
    assert brokers_of(table) == ["b"]
    table.disconnect("1")


def test_closing_an_earlier_connection_does_not_remove_a_broker(table):
    table.register(registration(), "1")
    table.register(registration(version=2), "2")
    table.disconnect("1")
    assert brokers_of(table) == ["a"]


def test_a_change_of_topics_is_visible_at_once(table):
    table.register(registration("a", ORDERS), "1")
    table.register(registration("a", ORDERS, CLICKS, version=2), "1")
    assert brokers_of(table, "clicks") == ["a"]


def test_an_older_data_version_counts_within_one_stream_only(table):
    """The clock of a broker that was restarted may have been set back."""
    table.register(registration("a", ORDERS, CLICKS, version=2), "1")
    table.register(registration("a", ORDERS, version=1), "1")
    assert brokers_of(table, "clicks") == ["a"]
    table.register(registration("a", ORDERS, version=1), "2")
    assert brokers_of(table, "clicks") == []
    table.disconnect("1")
    assert brokers_of(table) == ["a"]


@pytest.mark.parametrize(
    ("other", "user"),
    [
        (registration("a", store="s1", version=9), "mallory"),
        (registration("a", store="s2", version=9), "alice"),
        (registration("a", store="", version=9), "alice"),
        (registration("a", store="s1", version=9, address="b.example:8081"), "alice"),
        (registration("a", store="s1", version=9, cluster="west"), "alice"),
        (registration("a", store="s1", broker_id=1, address="b.example:8081"), "mallory"),
        (registration("a", store="s2", broker_id=1, address="b.example:8081"), "alice"),
    ],
)
def test_only_the_same_broker_replaces_the_stream_that_holds_its_name(table, other, user):
    table.register(registration("a", store="s1"), "1", "alice")
    assert code(lambda: table.register(other, "2", user)) == "BROKER_NAME_TAKEN"
    assert table.routes(["orders"])[0].brokers[0].addresses == {0: "a.example:8081"}
    table.disconnect("2")
    assert brokers_of(table) == ["a"]
    table.register(registration("a", CLICKS, store="s1"), "3", "alice")
    table.disconnect("1")
    assert brokers_of(table, "clicks") == ["a"]
    table.disconnect("3")
    table.register(other, "2", user)
    assert [broker.name for broker in table.brokers()] == ["a"]


def test_a_promoted_replica_replaces_the_earlier_primary_and_never_the_reverse(table):
    earlier = registration("a", store="s1")
    promoted = replace(earlier, address="b.example:8081", term=1)
    table.register(earlier, "1")
    table.register(promoted, "2")
    for late in (replace(earlier, data_version=9), replace(promoted, term=0)):
        assert code(table.register, late, "1") == "BROKER_NAME_TAKEN"
    table.disconnect("1")
    assert table.brokers()[0].addresses == {0: "b.example:8081"}
    table.disconnect("2")
    assert code(table.register, earlier, "1") == "BROKER_NAME_TAKEN", "while it is restarted"
    table.register(promoted, "3")
    assert table.brokers()[0].addresses == {0: "b.example:8081"}


def test_a_second_primary_with_the_same_name_is_refused_until_the_first_is_removed(table, clock):
    other = registration(address="other.example:8081")
    table.register(registration(), "1")
    assert code(table.register, other, "2") == "BROKER_NAME_TAKEN"
    assert table.routes(["orders"])[0].brokers[0].addresses == {0: "a.example:8081"}
    clock.seconds += EXPIRY_S
    table.register(other, "2")
    assert table.routes(["orders"])[0].brokers[0].addresses == {0: "other.example:8081"}


def test_a_replica_alone_is_listed_but_has_no_route_because_it_cannot_be_written_to(table):
    ordered = TopicData("orders", 2, 2, 6, ordered=True)
    replica = registration("a", ORDERS, broker_id=1, address="a1.example:8081")
    table.register(registration("b", ORDERS), "b")
    table.register(registration("a", ordered, CLICKS), "1")
    table.register(replica, "2")
    table.disconnect("1")
    assert brokers_of(table) == ["b"]
    assert table.routes(["orders"])[0].gone == [QueueData("a", ordered)]
    assert table.cluster_topics() == ["orders"]
    assert table.brokers()[0].addresses == {1: "a1.example:8081"}
    table.register(registration("a", ordered), "3")
    assert table.routes(["orders"])[0].brokers[0].addresses == {
        0: "a.example:8081",
        1: "a1.example:8081",
    }


def test_a_replica_expires_120_s_after_its_last_registration(table, clock):
    table.register(registration("a", broker_id=1), "1")
    clock.seconds += EXPIRY_S - 1
    table.register(registration("a"), "2")
    clock.seconds += 1
    assert [broker.addresses for broker in table.brokers()] == [{0: "a.example:8081"}]


def test_topics_are_listed_by_cluster(table):
    table.register(registration("a", ORDERS, cluster="east"), "1")
    table.register(registration("b", ORDERS, CLICKS, cluster="west"), "2")
    assert table.cluster_topics("east") == ["orders"]
    assert table.cluster_topics("west") == table.cluster_topics() == ["clicks", "orders"]
    assert table.cluster_topics("north") == []


def test_a_topic_may_have_65536_queues(table):
    table.register(registration("a", TopicData("orders", 65_536, 65_536, 6)), "1")
    assert table.cluster_topics() == ["orders"]


@pytest.mark.parametrize(
    "given",
    [
        registration(cluster=""),
        registration(cluster="c" * 128),
        registration("", address="a:1"),
        registration(broker_id=-1),
        registration("a", TopicData("", 1, 1, 6)),
        registration("a", TopicData("orders", -1, 1, 6)),
        registration("a", TopicData("orders", 1, 65_537, 6)),
        registration("a", TopicData("orders", 1, 1, -1)),
        registration("a", TopicData("orders", 1, 1, 8)),
        registration("a", TopicData("orders", 1, 1, 6, message_type="FIFO\n")),
        registration("a", TopicData("../x", 1, 1, 6)),
        registration("a", TopicData("o\nrders", 1, 1, 6)),
        registration("a", TopicData("o" * 256, 1, 1, 6)),
        registration("a\n", address="a:1"),
        registration("../x", address="a:1"),
        registration("..", address="a:1"),
        registration(cluster="c\x00"),
        registration(store="s\n"),
        registration(version=-1),
    ],
)
def test_an_invalid_registration_is_rejected(table, given):
    assert code(table.register, given, "1") == "REGISTRATION_INVALID"
    assert table.cluster_topics() == []


@pytest.mark.parametrize("address", ["0.0.0.0:8081", "[::]:8081"])
def test_an_unspecified_address_is_not_advertised(table, address):
    assert code(table.register, registration(address=address), "1") == "ADVERTISE_UNSPECIFIED"
    assert code(check_advertised, address) == "ADVERTISE_UNSPECIFIED"


def test_an_address_is_parsed_into_host_and_port():
    assert parse_address("broker.example:8081") == ("broker.example", 8081)
    assert parse_address("[::1]:1") == ("::1", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":8081",
        "host:0",
        "host:65536",
        "::1:80",
        "a/b:1",
        "a,b:1",
        *("a b:1", "a\r:1", "a\x00:1", "a\\b:1"),
        "a" * 301 + ":1",
    ],
)
def test_an_invalid_address_is_rejected(text):
    assert code(parse_address, text) == "ADDRESS_INVALID"
