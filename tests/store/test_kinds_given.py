"""The error for an argument of wrong type names the argument and its type; nothing is written."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import Message
from pyrocket.errors import (
    InvalidInputError,
    SchemaError,
)
from support.stores import filled


@pytest.fixture
def store(path):
    with filled(path, count=3) as opened:
        yield opened


def test_numpy_integers_are_accepted_as_numbers(store):
    store.append(Message(topic="t", body=b"x", queue_id=np.int32(0), flag=np.int64(7)))
    assert [each.flag for each in store.read("t", np.int32(0), np.int64(3))] == [7]


def test_an_arrow_table_is_rejected_with_a_remedy(store):
    table = pa.table({"body": pa.array([b"a", b"b"], pa.binary())})
    with pytest.raises(SchemaError, match=r"to_batches\(\)") as caught:
        store.append_batch(table, topic="t")
    assert "Table" in caught.value.message
    with pytest.raises(InvalidInputError, match="first_queue is '0'"):
        store.append_batch(table.to_batches()[0], topic="t", first_queue="0")
    for each in table.combine_chunks().to_batches():
        assert store.append_batch(each, topic="t").rows == 2


def test_a_permission_that_rocketmq_does_not_have_is_rejected(store):
    changes = store.topics.create, store.topics.update
    for change, perm in product(changes, [8, 77, -1, True, "6"]):
        with pytest.raises(InvalidInputError, match=r"TOPIC_PERMISSION.*their sum"):
            change("t", perm=perm)
    assert store.topics.create("inherited", perm=7).perm == 7
