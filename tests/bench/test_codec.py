"""The codec and the append path, on one core, without Spark."""

import os
from pathlib import Path

import numpy as np
import pytest
from bench.data import DEFAULT_COLUMNS, batch, fill
from bench.pairs import MIB, measure, touch
from pyrocket import Store
from support.slices import span_of


@pytest.mark.parametrize("verify_crc", [False, True])
@pytest.mark.parametrize("columns", [("body", "queueOffset"), DEFAULT_COLUMNS])
@pytest.mark.parametrize("body_bytes", [1024, 100])
def test_decoding_beside_memcpy(fast_disk, large, report, body_bytes, columns, verify_crc):
    rows = (400 * MIB if large else MIB) // (body_bytes + 150)
    with Store.open(f"{fast_disk}/store", create=True) as store:
        fill(store, "T", rows, body_bytes, queues=1)
        end = store.max_offset("T", 0)
        log_bytes = span_of(store, "T", 0, 0, end).bytes
        source = np.frombuffer(os.urandom(MIB), np.uint8).repeat(max(log_bytes // MIB, 1))

        def decode():
            for _ in store.scan("T", 0, 0, end, columns, verify_crc=verify_crc):
                pass

        pair = measure(decode, lambda: source.copy() is None, 7 if large else 1)
    crc = "crc checked" if verify_crc else "crc not checked"
    name = f"decode {body_bytes} B, {len(columns)} columns, {crc}, beside memcpy"
    report.rate(name, pair, log_bytes / 1e9, "GB of log", "≥ 1 GB/s at 1 KiB")


@pytest.mark.parametrize("body_bytes", [1024, 100])
def test_appending_beside_a_plain_write(fast_disk, large, report, body_bytes):
    """The files are allocated in advance, so that neither side waits for new memory pages."""
    # All messages fit in the store's first file.
    rounds, per_round = (7, 8) if large else (1, 1)
    one = batch(10_000 if large else 100, body_bytes, rich=False)
    with Store.open(f"{fast_disk}/store", create=True) as store:
        store.topics.create("T", read_queues=1, write_queues=1)
        size = store.append_batch(one, topic="T").bytes
        data = os.urandom(size)
        log = next(Path(fast_disk, "store", "commitlog").iterdir())
        touch(log, size * per_round * (rounds + 2))
        plain = os.open(f"{fast_disk}/plain", os.O_CREAT | os.O_RDWR)
        touch(f"{fast_disk}/plain", size * per_round * (rounds + 2))
        position = 0

        def append():
            for _ in range(per_round):
                store.append_batch(one, topic="T", first_queue=0)

        def write():
            nonlocal position
            for _ in range(per_round):
                position += os.pwrite(plain, data, position)

        pair = measure(append, write, rounds)
        os.close(plain)
    name = f"append of Arrow batches, {body_bytes} B, CRC included, beside pwrite"
    report.rate(name, pair, size * per_round / 1e9, "GB of log", "≥ 0.7 GB/s at 1 KiB")
