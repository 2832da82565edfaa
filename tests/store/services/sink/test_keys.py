"""Published messages are found by key immediately, and are indexed even in long batches."""

import pyarrow as pa
import pytest
from pyrocket.disk.shared_state import DISPATCHED, INDEXED
from support.inner import inner
from support.keyed import limit_index
from support.sinks import publish
from support.stores import words

ROWS = [b"%03d" % number + b"." * 300 for number in range(60)]
KEYS = pa.array([f"key{number}" for number in range(60)])


def test_published_messages_are_found_by_their_keys(store):
    publish(store, 0, ROWS, tasks=1, keys=KEYS)
    (found,) = store.lookup.query("t", "key7")
    assert found.body == ROWS[7]


@pytest.mark.parametrize("limit", [10, 10_000], ids=["too many to save", "saved"])
def test_the_index_includes_long_batches(path, store, limit):
    limit_index(store, catch_up_bytes=3000, slice_bytes=1, at_once_bytes=1)
    inner(store).appender.max_pending = limit
    page = words(path)
    for number in range(3):
        publish(store, number, ROWS, tasks=1, keys=KEYS)
        behind = page[DISPATCHED] - page[INDEXED]
        assert behind <= 3000
    page.close()
    assert [one.body for one in store.lookup.query("t", "key7")] == [ROWS[7]] * 3
