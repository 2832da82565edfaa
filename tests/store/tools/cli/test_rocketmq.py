"""Commands on a cluster of Apache RocketMQ."""

import json

import pytest
from pyrocket import Message
from pyrocket.formats.message_keys import offset_message_id
from support.commands import document, run
from support.rocketmq_cluster import rocketmq
from support.rocketmq_server import Fault, RefusedError


@pytest.fixture(scope="module", params=["4.9", "5.5"])
def made(request, tmp_path_factory):
    """Topic t with two queues at broker-a, topic both with one at each broker, and a group."""
    folder = tmp_path_factory.mktemp("rocketmq")
    with rocketmq(folder, version=request.param, brokers=("broker-a", "broker-b")) as made:
        for broker in made.brokers:
            broker.store.topics.create("both", read_queues=1, write_queues=1)
            broker.store.append(Message(topic="both", body=b"x" * 100))
            broker.store.groups.commit("g", "both", {0: 0 if broker.name == "broker-b" else 1})
        store = made.brokers[0].store
        store.topics.create("t", read_queues=2, write_queues=2)
        for number in range(6):
            keys = ["even"] if number % 2 == 0 else ["odd"]
            body = f"m{number}".encode()
            store.append(Message(topic="t", body=body, queue_id=number % 2, keys=keys))
        yield made


@pytest.fixture
def asked(made):
    """Run a command with `--json` on the cluster, and return the document."""

    def ask(*arguments, **options):
        return document(*arguments, "--namesrv", ";".join(made.addresses), **options)

    return ask


A = ("--broker", "broker-a")


def test_topics_are_listed_and_shown(asked):
    found = asked("topic", "list", *A)["topics"]
    assert [(each["topic"], each["messages"], each["bytes"]) for each in found] == [
        ("both", 1, None),
        ("t", 6, None),
    ]
    assert found[1]["lastStoreTimestamp"]
    shown = asked("topic", "show", "t", *A)
    assert (shown["readQueues"], shown["messages"], shown["messageType"]) == (2, 6, "")
    assert [(each["minOffset"], each["maxOffset"]) for each in shown["queues"]] == [(0, 3), (0, 3)]
    assert (shown["bytes"], shown["firstStoreTimestamp"]) == (None, None)
    assert all(each["lastStoreTimestamp"] for each in shown["queues"])
    error = asked("topic", "show", "tt", *A, status=2)["error"]
    assert (error["code"], "'t'" in error["remedy"]) == ("TOPIC_NOT_FOUND", True)


def test_a_topic_without_a_right_is_not_listed_and_not_shown(asked, made):
    fault = Fault(RefusedError(16, "User:ana is not allowed"), 202, 10**6)
    made.brokers[0].faults.append(fault)
    try:
        assert asked("topic", "list", *A)["topics"] == []
        error = asked("topic", "show", "t", *A, status=2)["error"]
        assert (error["code"], "'t'" in error["message"]) == ("PERMISSION_DENIED", True)
    finally:
        made.brokers[0].faults.remove(fault)


def test_routes_and_brokers_are_shown(asked, made):
    addresses = {each.name: each.address for each in made.brokers}
    route = asked("topic", "route", "both")["brokers"]
    assert {each["brokerName"]: each["address"] for each in route} == addresses
    assert [each["readQueues"] for each in asked("topic", "route", "t")["brokers"]] == [2]
    found = asked("broker", "list")["brokers"]
    assert {each["brokerName"]: each["address"] for each in found} == addresses
    assert asked("topic", "route", "none", status=2)["error"]["code"] == "TOPIC_NOT_FOUND"


def test_messages_are_shown_and_found(asked):
    def bodies(*arguments, **options):
        return [each["body"] for each in asked("message", *arguments, *A, **options)["messages"]]

    assert bodies("tail", "t", "--count", 3) == ["m3", "m4", "m5"]
    assert bodies("tail", "t", "--queue", 1, "--count", 1) == ["m5"]
    assert bodies("show", "t", "--count", 2) == ["m0", "m1"]
    assert bodies("show", "t", "--from", "-1h") == [f"m{number}" for number in range(6)]
    assert bodies("find", "t", "--key", "odd") == ["m1", "m3", "m5"]
    (last,) = asked("message", "tail", "t", "--count", 1, *A)["messages"]
    assert bodies("find", "t", "--id", last["msgId"]) == ["m5"]
    assert bodies("find", "t", "--key", "none", status=1) == []


def test_groups_are_those_of_all_brokers(asked, made):
    (group,) = asked("group", "list")["groups"]
    assert (group["group"], [each["lag"] for each in group["topics"]]) == ("g", [1])
    lags = asked("group", "lag", "g")["lag"]
    assert [(each["brokerName"], each["committedOffset"], each["lag"]) for each in lags] == [
        ("broker-a", 1, 0),
        ("broker-b", 0, 1),
    ]
    assert lags[1]["lagBytes"] > 100
    assert lags[1]["behindMs"] >= 0
    shown = asked("group", "show", "g")
    assert (shown["retryMaxTimes"], shown["members"]) == (16, [])
    error = asked("group", "show", "gg", status=2)["error"]
    assert (error["code"], "'g'" in error["remedy"]) == ("GROUP_NOT_FOUND", True)
    assert [each["maxOffset"] for each in asked("offset", "show", "g")["offsets"]] == [1, 1]


def test_one_broker_has_to_be_named(asked):
    error = asked("topic", "list", status=2)["error"]
    assert (error["code"], "broker-a, broker-b" in error["remedy"]) == ("BROKER_REQUIRED", True)
    assert asked("topic", "list", "--broker", "c", status=2)["error"]["code"] == "BROKER_UNKNOWN"


@pytest.mark.parametrize(
    "command",
    [
        "topic create new",
        "topic delete t --yes",
        "message consume t --group g",
        "group create new",
        "group reset g t --to latest --dry-run",
        "dlq list g",
        "store info",
        "broker status",
    ],
)
def test_commands_without_meaning_on_a_cluster_are_refused_by_name(asked, command):
    error = asked(*command.split(), *A, status=2)["error"]
    assert error["code"] == "OPTION_UNSUPPORTED"
    assert " ".join(command.split()[:2]) in error["message"]
    assert "mqadmin" in error["remedy"]


def test_the_cluster_comes_from_the_places_of_all_commands(made, tmp_path):
    servers = ";".join(made.addresses)
    found = document("broker", "list", PYROCKET_NAMESRV=servers)["brokers"]
    assert len(found) == 2
    config = tmp_path / "cli.toml"
    config.write_text(f'namesrv = "{servers}"\n')
    assert document("broker", "list", "--config", config)["brokers"] == found
    done = run("topic", "list", "--namesrv", servers, "--endpoint", "127.0.0.1:1")
    assert "Name one store" in done.stderr
    done = run("topic", "list", "--namesrv", "nothing", "--json")
    assert "HOST:PORT" in json.loads(done.stdout)["error"]["remedy"].upper()


def test_a_broker_is_reached_at_a_given_address(asked, made):
    broker = made.brokers[0]
    broker.registered_as = "192.0.2.1:1"
    try:
        replaced = ("--broker-addresses", f"broker-a={broker.address}")
        found = asked("message", "tail", "t", "--count", 1, *A, *replaced)["messages"]
        assert [each["body"] for each in found] == ["m5"]
    finally:
        broker.registered_as = ""


@pytest.fixture(params=["4.9", "5.5"])
def sending(request, tmp_path):
    """Topic t with two queues at one broker, and a function that runs `message send`."""
    with rocketmq(tmp_path, version=request.param) as made:
        store = made.brokers[0].store
        store.topics.create("t", read_queues=2, write_queues=2)

        def send(*arguments, **options):
            given = ("message", "send", *arguments, "--namesrv", made.addresses[0])
            return document(*given, **options)

        yield made, store, send


def test_a_message_is_sent_with_its_options_and_its_place_is_shown(sending):
    _, store, send = sending
    store.append(Message(topic="t", body=b"before", queue_id=1))
    options = ("--queue", 1, "--tags", "a", "--key", "k", "--property", "own=1")
    sent = send("t", "ä", *options, "--sharding-key", "s")["messages"]
    (message,) = store.messages("t", 1, 1, 2)
    assert sent == [
        {
            "queueId": 1,
            "queueOffset": 1,
            "msgId": message.msg_id,
            "offsetMsgId": offset_message_id(*store.lookup.host, message.physical_offset),
        }
    ]
    assert (message.body, message.tags, message.keys) == ("ä".encode(), "a", ("k",))
    assert message.properties["own"] == "1"
    assert message.properties["__SHARDINGKEY"] == "s"


def test_lines_are_sent_round_robin_or_by_their_keys(sending):
    _, store, send = sending
    lines = send("t", answer="a\nb\nc\nd\n")["messages"]
    assert sorted((each["queueId"], each["queueOffset"]) for each in lines) == [
        *((0, 0), (0, 1), (1, 0), (1, 1)),
    ]
    assert len({each["msgId"] for each in lines}) == 4
    send("t", "--key-separator", "=", "--queue", 0, answer="k1=x\nk2=y\n")
    messages = store.messages("t", 0, 2, 4)
    assert [(each.keys, each.body) for each in messages] == [(("k1",), b"x"), (("k2",), b"y")]


def test_a_delay_needs_rocketmq_5(sending):
    made, store, send = sending
    if made.is_5:
        (sent,) = send("t", "later", "--delay", "1h")["messages"]
        assert sent["msgId"]
        assert store.max_offset("t", sent["queueId"]) == 0
    else:
        error = send("t", "later", "--delay", "1h", status=2)["error"]
        assert error["code"] == "UNSUPPORTED_DELAY"


def test_what_a_cluster_refuses_is_named_and_nothing_is_sent(sending):
    _, store, send = sending
    error = send("t", "x", "--create-topic", status=2)["error"]
    assert error["code"] == "OPTION_UNSUPPORTED"
    assert "mqadmin updateTopic" in error["remedy"]
    error = send("none", "x", status=2)["error"]
    assert error["code"] == "TOPIC_NOT_FOUND"
    assert "mqadmin updateTopic" in error["remedy"]
    error = send("t", "x", "--queue", 2, status=2)["error"]
    assert (error["code"], "row" in error["message"]) == ("QUEUE_NOT_FOUND", False)
    error = send("t", "x", "--property", "TAGS=a", status=2)["error"]
    assert "TAGS" in error["message"]
    assert store.max_offset("t", 0) == store.max_offset("t", 1) == 0


def test_an_error_names_the_line_and_the_lines_before_it_are_stored(sending):
    _, store, send = sending
    error = send("t", "--key-separator", "=", answer="k=x\ny\n", status=2)["error"]
    assert error["code"] == "CLI_KEY_MISSING"
    assert store.max_offset("t", 0) + store.max_offset("t", 1) == 1
