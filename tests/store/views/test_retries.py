"""The views `retry` and `dlq` show the group and the origin of each message."""

import pytest
from pyrocket.errors import GroupNotFoundError, SchemaError
from pyrocket.views.retries import group_of
from support.stores import append_as_broker, message

SHOWN = ["consumerGroup", "originTopic", "originMsgId", "body", "reconsumeTimes", "consumed"]


def rows(store, view, columns, **options):
    return [
        row
        for part in store.views.plan(view, **options)
        for batch in store.views.scan(part, columns)
        for row in batch.to_pylist()
    ]


def send_back(store, topic, body, origin="orders", queues=1):
    """Append a message to a system topic as a broker does."""
    store.topics.create(topic, read_queues=queues, write_queues=queues)
    own = {"RETRY_TOPIC": origin, "ORIGIN_MESSAGE_ID": "7F" * 16, "WAIT": "false", "mine": "1"}
    append_as_broker(store, topic, own, 0, body=body)


@pytest.fixture
def sent_back(store):
    for number in range(3):
        send_back(store, "%RETRY%billing", b"%d" % number)
    send_back(store, "%RETRY%mail", b"m", origin="letters")
    send_back(store, "%DLQ%mail", b"dead", origin="letters")
    store.groups.commit("billing", "%RETRY%billing", {0: 2})
    store.groups.create("mail")
    return store


def test_the_view_retry_has_the_group_and_origin_of_the_messages_of_all_groups(sent_back):
    found = [tuple(row.values()) for row in rows(sent_back, "retry", SHOWN)]
    first = "7F" * 16
    assert found == [
        ("billing", "orders", first, b"0", 0, True),
        ("billing", "orders", first, b"1", 0, True),
        ("billing", "orders", first, b"2", 0, False),
        ("mail", "letters", first, b"m", 0, False),
    ]


def test_dead_letters_are_read_from_the_topic_of_the_group(sent_back):
    (row,) = rows(sent_back, "dlq", ["consumerGroup", "topic", "body", "properties"])
    assert row == {
        "consumerGroup": "mail",
        "topic": "%DLQ%mail",
        "body": b"dead",
        "properties": [("mine", "1")],
    }


def test_a_view_can_be_limited_to_one_group(sent_back):
    for view, bodies in (("retry", [b"m"]), ("dlq", [b"dead"])):
        assert [row["body"] for row in rows(sent_back, view, ["body"], group="mail")] == bodies
    assert rows(sent_back, "dlq", ["body"], group="billing") == []
    with pytest.raises(GroupNotFoundError, match="mial"):
        sent_back.views.plan("retry", group="mial")


def test_a_pending_retry_is_shown_until_it_is_delivered(open_store, clock):
    store = open_store()
    store.topics.create("%RETRY%billing", read_queues=1, write_queues=1)
    store.append(message(b"x", topic="%RETRY%billing", queue_id=0, delay_level=3))
    store.append(message(b"other", topic="t", delay_level=3))
    columns = ["consumerGroup", "body", "dueTimestamp", "consumed"]
    (waiting,) = rows(store, "retry", columns)
    assert round(waiting.pop("dueTimestamp").timestamp() * 1000) == clock.now + 10_000
    assert waiting == {"consumerGroup": "billing", "body": b"x", "consumed": False}
    clock.now += 10_000
    store.deliver_due()
    (there,) = rows(store, "retry", columns)
    assert (there["body"], there["dueTimestamp"]) == (b"x", None)


def test_a_dead_letter_has_no_due_time(sent_back):
    (part,) = sent_back.views.plan("dlq")
    with pytest.raises(SchemaError, match="dueTimestamp"):
        sent_back.views.scan(part, ["dueTimestamp"])


@pytest.mark.parametrize(
    ("topic", "group"),
    [
        ("orders", ""),
        ("%RETRY%billing", "billing"),
        ("%DLQ%billing", "billing"),
        ("%RETRY%billing_eu_orders", "billing_eu"),
        ("%RETRY%billing_orders", "billing"),
        ("%RETRY%billing+orders", "billing"),
        ("%RETRY%nobody_knows", "nobody_knows"),
    ],
)
def test_the_group_is_derived_from_the_name_of_the_retry_topic(topic, group):
    """RocketMQ 5 has a retry topic per group and topic for pop consumers."""
    assert group_of(topic, {"billing", "billing_eu"}, {"orders"}) == group
