"""The columns of a staged block are those of its batch."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyrocket.base.config import StoreConfig
from pyrocket.engine.message_encoder import AppendRoute, MessageEncoder
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.formats.staged_block import decode_columns, encode_columns, index_block


@pytest.fixture
def batch():
    rows = pa.record_batch({"body": [b"a", b"bc"], "keys": [["k"], ["k", "l"]]})
    encoder = MessageEncoder(StoreConfig(), lambda: 1)
    (encoded,) = encoder.encode_rows(
        rows, check_send_batch(rows), "t", 0, lambda name: AppendRoute(name, 1)
    )
    return encoded


@pytest.mark.parametrize("keys", ["known", "unknown"])
def test_the_columns_of_a_block_are_decoded_to_those_of_its_batch(batch, keys):
    """If the keys of a batch are unknown, they are read from the log later."""
    batch = batch if keys == "known" else replace(batch, keys=None)
    data = encode_columns(batch)
    found = decode_columns(index_block(batch, data, 0, 0, 0), data, read=lambda: batch.data)
    assert found.sizes.tolist() == np.diff(batch.bounds).tolist()
    assert found.queue_ids.tolist() == batch.queue_ids.tolist()
    if keys == "unknown":
        assert found.keys is None
    else:
        assert found.keys.rows.tolist() == batch.keys.rows.tolist()
        assert found.keys.hashes.tolist() == batch.keys.hashes.tolist()
