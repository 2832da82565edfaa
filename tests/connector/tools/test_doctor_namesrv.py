"""`pyrocket doctor --namesrv` tries each step of a query, and reports the one that fails."""

import pytest
from pyrocket import Message
from support.commands import document
from support.rocketmq_cluster import rocketmq
from support.rocketmq_server import Fault, RefusedError


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with rocketmq(tmp_path_factory.mktemp("rocketmq"), version="5.5") as made:
        (broker,) = made.brokers
        broker.store.topics.create("orders", read_queues=2, write_queues=2)
        broker.store.append(Message(topic="orders", body=b"x"))
        broker.store.groups.commit("etl", "orders", {0: 0})
        yield made


@pytest.fixture
def made(cluster):
    yield cluster
    cluster.brokers[0].reset()
    cluster.brokers[0].registered_as = ""


def examined(made, *arguments, status=0):
    """Return the verdicts by name, without the addresses, and the last check that did not pass."""
    found = document("doctor", "--namesrv", made.addresses[0], *arguments, status=status)["checks"]
    places = {made.addresses[0]: "NAMESRV", made.brokers[0].advertised: "BROKER"}
    verdicts = {}
    for check in found:
        name = check["name"]
        for address, place in places.items():
            name = name.replace(address, place)
        verdicts[name] = check["verdict"]
    failed = [check for check in found if check["verdict"] != "ok"]
    return verdicts, failed[-1] if failed else None


def test_every_step_of_a_query_is_tried(made):
    verdicts, _ = examined(made, "--topic", "orders", "--group", "etl")
    assert verdicts == dict.fromkeys(
        [
            *("NAMESRV: name", "NAMESRV: port", "route of orders"),
            *("broker-a 0: BROKER: name", "broker-a 0: BROKER: port"),
            *("broker-a: rights on the topic", "broker-a: rights on the group"),
            "broker-a: one message",
        ],
        "ok",
    )
    verdicts, warned = examined(made)
    assert "brokers" in verdicts
    assert "--topic" in warned["remedy"]


def test_an_address_that_cannot_be_reached_from_here_is_named(made):
    made.brokers[0].registered_as = "127.0.0.1:1"
    verdicts, failed = examined(made, "--topic", "orders", status=1)
    assert [*verdicts][-1] == "broker-a 0: BROKER: port"
    assert "brokerAddresses=broker-a=HOST:PORT" in failed["remedy"]
    replaced = f"broker-a={made.brokers[0].address}"
    assert examined(made, "--topic", "orders", "--broker-addresses", replaced)[1] is None


@pytest.mark.parametrize(
    ("code", "step"),
    [(202, "rights on the topic"), (14, "rights on the group"), (11, "one message")],
)
def test_the_right_that_is_missing_is_named(made, code, step):
    made.brokers[0].faults.append(Fault(RefusedError(16, "no permission"), code, 10))
    verdicts, failed = examined(made, "--topic", "orders", "--group", "etl", status=1)
    assert [*verdicts][-1] == f"broker-a: {step}"
    assert "SUB" in failed["remedy"]


def test_a_topic_without_a_route_and_a_port_of_something_else_are_reported(made):
    verdicts, failed = examined(made, "--topic", "none", status=1)
    assert [*verdicts][-1] == "route of none"
    assert "mqadmin updateTopic" in failed["remedy"]
    broker = made.brokers[0].address
    found = document("doctor", "--namesrv", broker, status=1)["checks"]
    assert "is a broker, not a name server" in found[-1]["found"]
    found = document("doctor", "--namesrv", "127.0.0.1:1", status=1)["checks"]
    assert "name server" in found[-1]["remedy"]
