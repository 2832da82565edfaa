"""Guarantees of a batch read from a store that is truncated, corrupt, or in use."""

import subprocess
import sys

import pytest
from pyrocket import Store
from pyrocket.errors import StoreDamagedError
from support.direct import read
from support.stores import filled, log_files, numbered, overwrite, reboot

SHOWN = "queueId INT, queueOffset BIGINT, body BINARY"

WRITER = """
import sys, pyarrow as pa
from pyrocket import Store
with Store.open(sys.argv[1]) as store:
    for batch in range(100):
        bodies = [b"%06d" % (batch * 50 + row) for row in range(50)]
        rows = {"body": pa.array(bodies), "queueId": pa.array([batch % 2] * 50, pa.int32())}
        store.append_batch(pa.record_batch(rows), topic="t")
"""


def rows(path, **options):
    """Return the rows that the tasks of a batch read, as (queue, offset, body)."""
    return [
        tuple(row.values()) for row in read({"path": str(path), "topic": "t"}, SHOWN, **options)
    ]


def bodies(path, **options):
    return [row[-1] for row in rows(path, **options)]


def test_a_batch_reads_exactly_the_given_offset_range(box):
    box.create(queues=3)
    for queue in range(3):
        box.send(*(b"%d-%d" % (queue, at) for at in range(20)), queue=queue)
    span = {
        "startingOffsets": '{"t":{"0":3,"1":"earliest","2":20}}',
        "endingOffsets": '{"t":{"0":7,"1":2,"2":"latest"}}',
    }
    assert rows(box.path, **span) == [
        *((0, at, b"0-%d" % at) for at in range(3, 7)),
        *((1, at, b"1-%d" % at) for at in range(2)),
    ]


def test_a_batch_reads_a_recovered_store_and_verifies_crcs_on_request(tmp_path):
    path = tmp_path / "store"
    filled(path, count=40).close(clean=False)
    last = log_files(path)[-1]
    end = len(last.read_bytes().rstrip(b"\0"))
    overwrite(last, bytes(30), end - 30)
    reboot(path)
    with Store.open(path) as store:  # The machine crashed; the next writer recovers.
        assert store.history.epoch > 0
    whole = numbered(39)
    assert bodies(path, verifyCrc="true") == whole
    overwrite(log_files(path)[0], b"!", 95)
    with pytest.raises(StoreDamagedError, match="checksum"):
        bodies(path, verifyCrc="true")
    assert bodies(path)[1:] == whole[1:], "the checksum was not requested"


def test_a_batch_reads_complete_batches_while_another_process_writes(box):
    box.create(queues=2)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, box.path])
    try:
        seen, looks = 0, 0
        while writer.poll() is None:
            found = rows(box.path)
            looks += 1
            for queue in (0, 1):
                offsets = [offset for which, offset, _ in found if which == queue]
                assert offsets == list(range(len(offsets)))
            numbers = sorted(int(body) for *_, body in found)
            assert numbers == list(range(len(numbers))), "batches are complete and in order"
            assert len(numbers) % 50 == 0
            assert len(numbers) >= seen
            seen = len(numbers)
        assert writer.wait(60) == 0
    finally:
        writer.kill()
        writer.wait()
    assert looks > 1
    assert len(rows(box.path)) == 5_000
