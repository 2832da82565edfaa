"""Checking a store on one core, compared with computing the checksums of its bodies."""

import zlib

import pytest
from bench.data import fill
from bench.pairs import MIB, measure
from pyrocket import Store, StoreConfig
from pyrocket.tools.verify.verify import verify
from support.slices import span_of


@pytest.mark.parametrize("key_index", [False, True], ids=["queues", "queues and keys"])
@pytest.mark.parametrize("body_bytes", [1024, 100])
def test_verify_beside_checksums(fast_disk, large, report, body_bytes, key_index):
    rows = (400 * MIB if large else MIB) // (body_bytes + 150)
    config = StoreConfig(key_index=key_index)
    with Store.open(f"{fast_disk}/store", create=True, config=config) as store:
        fill(store, "T", rows, body_bytes, queues=4)
        log_bytes = sum(
            span_of(store, "T", queue, 0, known.maximum).bytes
            for queue, known in store.offsets("T").items()
        )
    bodies = [memoryview(bytes(body_bytes))] * (log_bytes // (body_bytes + 150))

    def check():
        assert verify(f"{fast_disk}/store").ok

    def checksums():
        for body in bodies:
            zlib.crc32(body)

    pair = measure(check, checksums, 5 if large else 1)
    what = "log, queues and key index" if key_index else "log and queues"
    name = f"verify {what}, {body_bytes} B, beside zlib.crc32 of each body"
    report.rate(name, pair, log_bytes / 1e9, "GB of log", "≥ 0.5 GB/s at 1 KiB")
