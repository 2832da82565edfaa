"""Commands and notebook tables with the address of a name server."""

import socket
from contextlib import ExitStack

import pytest
from pyrocket import Message, Store, StoreConfig
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.tools import notebook
from pyrocket.values.routes import Registration, TopicData
from support import name_server
from support.broker import join_group, served
from support.commands import document, run
from support.transports import register

NAMES = ["broker-a", "broker-b"]


@pytest.fixture
def table():
    return RouteTable()


@pytest.fixture
def brokers(tmp_path, table):
    """Serve two brokers with a topic `t` of one queue; yield their addresses by name.

    Group `both` has committed an offset at each of them, group `one` only at the second.
    """
    with ExitStack() as stack:
        addresses = {}
        for number, name in enumerate(NAMES):
            config = StoreConfig(broker_name=name)
            store = Store.open(tmp_path / name, create=True, config=config)
            store.topics.create("t", read_queues=1, write_queues=1)
            for _ in range(number + 2):
                store.append(Message(topic="t", body=b"m"))
            for group in ["both", "one"][: number + 1]:
                store.groups.commit(group, "t", {0: 1})
            addresses[name] = stack.enter_context(served(store))
            register(table, name, addresses[name])
        yield addresses


@pytest.fixture
def address(brokers, table):
    with name_server.serving(table) as address:
        yield address


def refusal(code, *arguments):
    """Return the error of a command, which must have this code."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert f"[{code}]" in done.stderr
    return done.stderr


def lags(address, *arguments):
    found = document("group", "lag", *arguments, "--endpoint", address)["lag"]
    return [(one["group"], one["brokerName"], one["queueId"], one["lag"]) for one in found]


def test_a_name_server_that_does_not_answer_leaves_time_for_the_next_one(address):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{address}"
        rows = document("broker", "list", "--endpoint", servers)["brokers"]
    assert [row["brokerName"] for row in rows] == NAMES


def test_the_lag_of_groups_covers_all_brokers(address):
    assert lags(address) == [
        ("both", "broker-a", 0, 1),
        ("both", "broker-b", 0, 2),
        ("one", "broker-b", 0, 2),
    ]
    assert lags(address, "one") == [("one", "broker-b", 0, 2)]
    arguments = "group", "lag", "missing", "--endpoint", address
    assert "'missing'" in refusal("GROUP_NOT_FOUND", *arguments)


def test_the_members_of_a_group_are_those_at_all_brokers(address, brokers):
    join_group(brokers["broker-a"], "both", "c1", t="a")
    for broker in brokers.values():
        join_group(broker, "both", "c2", t="b")
    found = document("group", "show", "both", "--endpoint", address)["members"]
    assert found == [
        {"clientId": "c1", "differs": True},
        {"clientId": "c2", "differs": False},
    ]


def test_other_commands_need_the_name_of_a_broker(address):
    create = "topic", "create", "new", "--endpoint", address
    assert "broker-a, broker-b" in refusal("BROKER_REQUIRED", *create)
    document(*create, "--broker", "broker-b")
    topics = ("topic", "list", "--endpoint", address)
    for name, expected in zip(NAMES, [["t"], ["new", "t"]], strict=True):
        found = document(*topics, PYROCKET_BROKER=name)["topics"]
        assert [one["topic"] for one in found] == expected


def test_an_unknown_broker_is_reported_with_the_known_ones(address, brokers):
    list_at = "topic", "list", "--endpoint"
    shown = refusal("BROKER_UNKNOWN", *list_at, address, "--broker", "broker-c")
    assert "broker-a, broker-b" in shown
    shown = refusal("BROKER_UNKNOWN", *list_at, brokers["broker-a"], "--broker", "broker-b")
    assert "is broker-a, not broker-b" in shown


def test_a_broker_that_does_not_answer_is_named(address, table):
    register(table, "broker-c", "127.0.0.1:1")
    shown = refusal("TRANSPORT_FAILED", "group", "lag", "--endpoint", address)
    assert "broker-c at 127.0.0.1:1" in shown


def test_the_only_broker_needs_no_name(address, table):
    table.disconnect("broker-a")
    found = document("topic", "list", "--endpoint", address)["topics"]
    assert [one["messages"] for one in found] == [3]
    table.disconnect("broker-b")
    assert "no live broker" in refusal("BROKER_UNKNOWN", "topic", "list", "--endpoint", address)


def test_notebook_tables_of_groups_cover_all_brokers(address, monkeypatch):
    monkeypatch.setenv("PYROCKET_ENDPOINT", address)
    monkeypatch.delenv("PYROCKET_STORE", raising=False)
    assert [row[:3] for row in notebook.lag(group="both").rows] == [
        ("both", "t", "broker-a"),
        ("both", "t", "broker-b"),
    ]
    assert [row[:3] for row in notebook.groups().rows] == [("both", "t", 3), ("one", "t", 2)]
    with notebook.at(address, broker="broker-b") as broker:
        assert [row[:3] for row in notebook.lag(broker, "both").rows] == [("both", "t", "broker-b")]


def test_the_brokers_of_name_servers_are_listed_with_their_addresses(address, brokers, table):
    table.register(Registration("c", "broker-a", 7, "replica:1", 1, []), "replica")
    found = document("broker", "list", "--endpoint", address)["brokers"]
    rows = [(name, 0, brokers[name]) for name in NAMES]
    rows.insert(1, ("broker-a", 7, "replica:1"))
    keys = "brokerName", "brokerId", "address"
    assert found == [dict(zip(keys, row, strict=True)) for row in rows]
    shown = run("broker", "list", "--endpoint", address).stdout.splitlines()
    assert [tuple(line.split()) for line in shown[1:]] == [(a, str(n), at) for a, n, at in rows]
    one = document("broker", "list", "--endpoint", brokers["broker-a"])["brokers"]
    assert [each["brokerName"] for each in one] == ["broker-a"]


def test_the_route_of_a_topic_shows_its_queues_at_each_broker(address, brokers, table):
    topic = TopicData("t", read_queues=1, write_queues=1, perm=6, ordered=True)
    for name in NAMES:
        table.register(Registration("c", name, 0, brokers[name], 2, [topic]), name)
        table.register(Registration("c", name, 7, f"{name}-7:1", 2, []), f"{name}-7")
    found = document("topic", "route", "t", "--endpoint", address)["brokers"]
    more = {"readQueues": 1, "writeQueues": 1, "perm": 6}
    assert found == [
        {"brokerName": name, "address": brokers[name], "replicas": [f"{name}-7:1"], **more}
        for name in NAMES
    ]
    alone = document("topic", "route", "t", "--endpoint", brokers["broker-b"])["brokers"]
    assert [one["brokerName"] for one in alone] == ["broker-b"]
    shown = run("topic", "route", "t", "--endpoint", address).stdout
    assert brokers["broker-a"] in shown
    assert "broker-a-7:1" in shown
    refusal("TOPIC_NOT_FOUND", "topic", "route", "u", "--endpoint", address)
    table.disconnect("broker-a")
    gone, _ = document("topic", "route", "t", "--endpoint", address)["brokers"]
    assert (gone["brokerName"], gone["address"]) == ("broker-a", None)


def test_brokers_and_routes_need_an_endpoint(tmp_path):
    for words in (["broker", "list"], ["topic", "route", "t"]):
        done = run(*words, "--path", tmp_path)
        assert (done.exit_code, "--endpoint HOST:PORT" in done.stderr) == (2, True)
