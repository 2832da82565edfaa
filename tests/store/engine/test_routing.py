"""Rows are routed to queues and grouped by queue."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.engine.message_encoder import order_by_queue, route
from pyrocket.errors import MessageError
from pyrocket.formats.hashes import queue_for_key
from pyrocket.formats.send_columns import check_send_batch

KEYS = st.one_of(st.none(), st.text("abcü😀 ", max_size=5))


@given(
    rows=st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 4))), min_size=1),
    first=st.integers(0, 2000),
)
def test_every_row_has_its_queue(rows, first):
    keys, ids = map(list, zip(*rows, strict=True))
    batch = {"body": [b""] * len(rows), "shardingKey": pa.array(keys, pa.string())}
    columns = check_send_batch(pa.record_batch({**batch, "queueId": pa.array(ids, pa.int32())}))
    chosen = route(columns, "t", 5, first).tolist()
    free = []
    for (key, queue_id), found in zip(rows, chosen, strict=True):
        if queue_id is not None:
            assert found == queue_id
        elif key:
            assert found == queue_for_key(key, 5)
        else:
            free.append(found)
    counts = [free.count(queue_id) for queue_id in range(5)]
    assert max(counts) - min(counts) <= 1
    assert sum(a != b for a, b in itertools.pairwise(free)) <= 4, "in runs"


@given(ids=st.lists(st.integers(0, 3), min_size=1))
def test_the_rows_of_a_queue_keep_their_order(ids):
    order = order_by_queue(np.array(ids, np.int32))
    rows = list(range(len(ids))) if order is None else order.to_pylist()
    assert sorted(rows) == list(range(len(ids)))
    grouped = [ids[row] for row in rows]
    assert sum(a != b for a, b in itertools.pairwise(grouped)) == len(set(ids)) - 1
    for queue_id in set(ids):
        mine = [row for row in rows if ids[row] == queue_id]
        assert mine == sorted(mine)


@pytest.mark.parametrize("wrong", [-1, 4, 2**31 - 1])
def test_an_error_about_a_missing_queue_names_the_row(wrong):
    ids = pa.array([0, None, wrong], pa.int64())
    columns = check_send_batch(pa.record_batch({"body": [b""] * 3, "queueId": ids}))
    with pytest.raises(MessageError, match=r"row 2 .*queue"):
        route(columns, "t", 4, 0)
