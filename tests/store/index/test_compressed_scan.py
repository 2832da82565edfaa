"""Highly compressible bodies are read in batches of limited size."""

import os
import random

import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.formats import record_columns

MIB = 1 << 20


def test_a_scan_of_highly_compressible_bodies_uses_little_memory(tmp_path):
    bodies = [b"%d" % number + bytes(2 * MIB) for number in range(24)]
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("T", read_queues=1, write_queues=1)
        for first in range(0, 24, 8):
            store.append_batch(pa.record_batch({"body": bodies[first : first + 8]}), topic="T")
        store.append_batch(pa.record_batch({"body": ["plain", "too"]}), topic="T")
        batches = list(store.scan("T", 0, 0, 26, ["queueOffset", "body", "tags"]))
        assert [row for batch in batches for row in batch["queueOffset"].to_pylist()] == [
            *range(26)
        ]
        found = [row for batch in batches for row in batch["body"].to_pylist()]
        assert found == [*bodies, b"plain", b"too"]
        assert max(batch["body"].nbytes for batch in batches) < 8 * MIB
        (names,) = store.scan("T", 0, 0, 26, ["queueOffset"])
        assert names.num_rows == 26


@pytest.mark.parametrize("plain_bytes", [1, 9_000, 70_000, 10 * MIB])
def test_bodies_are_complete_and_in_order_whatever_the_limit_of_a_batch(
    tmp_path, monkeypatch, plain_bytes
):
    monkeypatch.setattr(record_columns, "PLAIN_BYTES", plain_bytes)
    rng = random.Random(3)
    shapes = (b"", b"short", b"x" * 5_000, b"y" * 40_000, os.urandom(6_000))
    bodies = [rng.choice(shapes) + b"%d" % number for number in range(60)]
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("T", read_queues=1, write_queues=1)
        store.append_batch(pa.record_batch({"body": pa.array(bodies, pa.binary())}), topic="T")
        batches = list(store.scan("T", 0, 0, 60, ["queueOffset", "body"], verify_crc=True))
    found = pa.Table.from_batches(batches)
    assert found["body"].to_pylist() == bodies
    assert found["queueOffset"].to_pylist() == [*range(60)]
    assert (len(batches) > 1) == (plain_bytes < MIB)
    if plain_bytes == 70_000:
        most = plain_bytes + max(map(len, bodies)) + 4 * 61
        assert max(batch["body"].nbytes for batch in batches) <= most
