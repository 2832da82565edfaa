"""Bodies that deflate to almost nothing come back in batches of bounded size."""

import pyarrow as pa
from pyrocket import Store

MIB = 1 << 20


def test_a_scan_of_highly_compressible_bodies_stays_small(tmp_path):
    bodies = [b"%d" % number + bytes(2 * MIB) for number in range(24)]
    with Store.open(tmp_path / "store", create=True) as store:
        store.create_topic("T", read_queues=1, write_queues=1)
        for first in range(0, 24, 8):
            store.append_batch(pa.record_batch({"body": bodies[first : first + 8]}), topic="T")
        store.append_batch(pa.record_batch({"body": ["plain", "too"]}), topic="T")
        batches = list(store.scan("T", 0, 0, 26, ["queueOffset", "body", "tags"]))
        assert [row for batch in batches for row in batch["queueOffset"].to_pylist()] == [
            *range(26)
        ]
        found = [row for batch in batches for row in batch["body"].to_pylist()]
        assert found == [*bodies, b"plain", b"too"]
        assert max(batch["body"].nbytes for batch in batches) < 40 * MIB
        (names,) = store.scan("T", 0, 0, 26, ["queueOffset"])
        assert names.num_rows == 26
