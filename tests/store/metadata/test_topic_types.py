"""The types of topics: RocketMQ's attribute `message.type`."""

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.errors import InvalidInputError, TopicNotFoundError


def test_the_type_of_a_topic_is_saved_in_rocketmqs_table(tmp_path):
    with Store.open(tmp_path, create=True) as store:
        store.topics.create("t")
        assert store.topics.message_type("t") == store.topics.message_type("missing") == ""
        store.topics.set_message_type("t", "FIFO")
        store.topics.update("t", write_queues=8, read_queues=8)
    assert '"attributes":{"message.type":"FIFO"}' in "".join(
        Layout(tmp_path).config("topics").read_text().split()
    )
    with Store.open(tmp_path, read_only=True) as store:
        assert store.topics.message_type("t") == "FIFO"


def test_unknown_types_and_topics_are_rejected(tmp_path):
    with Store.open(tmp_path, create=True) as store:
        store.topics.create("t")
        with pytest.raises(InvalidInputError) as caught:
            store.topics.set_message_type("t", "LITE")
        assert caught.value.code == "MESSAGE_TYPE"
        with pytest.raises(TopicNotFoundError):
            store.topics.set_message_type("missing", "FIFO")
