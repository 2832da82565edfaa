"""Consumers of topics that do not exist yet."""

import pytest
from pyrocket import Message, Store
from pyrocket.client import ConsumeResult, Producer, PushConsumer
from support.name_server import wait_until


@pytest.fixture
def path(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("orders")
    return tmp_path / "store"


# Without a broker, the topic is noticed at the next rebalance.
@pytest.mark.parametrize(
    "at", [pytest.param("path", marks=pytest.mark.heavy), "endpoint"], indirect=True
)
def test_a_consumer_waits_for_its_topic_and_gets_the_first_message(at, caplog):
    seen = []

    def listen(messages):
        seen.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    with PushConsumer("billing", **at, subscriptions={"oders": "*"}, listener=listen):
        (line,) = lines_about("oders", caplog)
        assert "does not exist yet" in line
        assert "orders" in line
        with Producer(**at) as producer:
            for body in (b"first", b"second"):
                producer.send(Message(topic="oders", body=body))
            wait_until(lambda: sorted(seen) == [b"first", b"second"])
    assert lines_about("oders", caplog) == [line]


def lines_about(topic, caplog):
    found = [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"]
    return [line for line in found if topic in line]
