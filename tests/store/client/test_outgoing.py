"""The messages that producers send: checks, compression and batches."""

import doctest
import zlib
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.client import outgoing as module
from pyrocket.client.outgoing import batch_bytes, check_batch, check_outgoing, outgoing, split_batch
from pyrocket.errors import PyrocketError
from pyrocket.formats.compression import COMPRESSED_FLAGS
from pyrocket.values.message import Message


def message(**fields):
    return Message(**{"topic": "orders", "body": b"1", **fields})


def code_of(call, *arguments):
    with pytest.raises(PyrocketError) as caught:
        call(*arguments)
    return caught.value.code


def test_bodies_of_at_least_4096_bytes_are_compressed_if_that_makes_them_shorter():
    short, long = bytes(4095), bytes(4096)
    assert outgoing(message(body=short), "ID", 7).body == short
    sent = outgoing(message(body=long), "ID", 7)
    assert (zlib.decompress(sent.body), sent.sys_flag) == (long, COMPRESSED_FLAGS)
    assert (sent.unique_id, sent.born_timestamp) == ("ID", 7)
    dense = Random(1).randbytes(5000)
    sent = outgoing(message(body=dense), "ID", 7)
    assert (sent.body, sent.sys_flag) == (dense, 0)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("text", "MESSAGE_ILLEGAL"),
        (message(topic="a b"), "TOPIC_ILLEGAL"),
        (message(topic="SCHEDULE_TOPIC_XXXX"), "TOPIC_ILLEGAL"),
        (message(body=bytes(101)), "BODY_TOO_LARGE"),
        (message(delay_level=1, deliver_at_ms=1), "DELAY_TWICE"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused(given, code):
    assert code_of(check_outgoing, given, 100) == code


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        ([], "BATCH_EMPTY"),
        ("text", "WRONG_TYPE"),
        ([message(), message(topic="other")], "BATCH_DIFFERS"),
        ([message(), message(queue_id=1)], "BATCH_DIFFERS"),
        ([message(sharding_key="a"), message(sharding_key="b")], "BATCH_DIFFERS"),
        ([message(delay_level=1)], "BATCH_DELAYED"),
        ([message(deliver_at_ms=1)], "BATCH_DELAYED"),
        ([message(topic="%RETRY%billing")], "BATCH_TOPIC"),
        ([message(body=bytes(60))] * 2, "BATCH_TOO_LARGE"),
    ],
)
def test_a_batch_that_cannot_be_sent_is_refused(batch, code):
    assert code_of(check_batch, batch, 100) == code


def test_a_batch_may_have_exactly_the_maximum_size():
    messages = [message(body=bytes(50)) for _ in range(6)]
    size = batch_bytes(messages[0])
    assert [len(batch) for batch in split_batch(messages, 2 * size)] == [2, 2, 2]
    assert [len(batch) for batch in split_batch(messages, 2 * size - 1)] == [1] * 6


@given(st.lists(st.integers(0, 150), max_size=30))
def test_a_split_keeps_all_messages_in_order_in_batches_of_the_size(sizes):
    messages = [message(body=bytes(size)) for size in sizes]
    batches = [*split_batch(messages, 200)]
    assert [one for batch in batches for one in batch] == messages
    for batch in batches:
        assert len(batch) == 1 or sum(map(batch_bytes, batch)) <= 200
    for batch, after in pairwise(batches):
        assert sum(map(batch_bytes, batch)) + batch_bytes(after[0]) > 200


def test_examples_in_docstrings_are_correct():
    assert doctest.testmod(module).failed == 0
