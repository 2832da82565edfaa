"""Copies of stored records: unchanged fields, and fields with new values."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.record import MAGIC_V1, SYS_TRANSACTION_MASK
from pyrocket.formats.record_copy import Changes, copy_records
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from support.strategies import raw_record, slices

STAYS = ("body", "born_timestamp", "born_host", "store_host")
COMMIT = 0x8


def fields_of(records, base=0):
    sizes = np.array([len(record) for record in records])
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return RecordFields(pa.py_buffer(b"".join(records)), base, starts, sizes)


def placed(copies, physical=1000, store_time=77):
    """Return the copies as they would be stored, the first at `physical`."""
    copies.place(physical + copies.bounds[:-1], np.arange(len(copies)) + 5, store_time)
    data = bytes(copies.data)
    cuts = zip(copies.bounds[:-1], copies.bounds[1:], strict=True)
    return [decode_record(data[start:end]) for start, end in cuts]


@given(slices(), st.data())
def test_copies_equal_the_records_except_for_their_location(piece, data):
    run = RecordFields(
        pa.py_buffer(piece.data), piece.base, np.array(piece.starts), np.array(piece.sizes)
    )
    count = len(piece.records)
    rows = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    queue_ids = np.arange(len(rows), dtype=np.int32)
    copies = copy_records(run, np.array(rows), "elsewhere", queue_ids)
    for at, (row, copy) in enumerate(zip(rows, placed(copies), strict=True)):
        original = decode_record(piece.records[row], verify_crc=False)
        for name in (*STAYS, "properties", "flag", "reconsume_times"):
            assert getattr(copy, name) == getattr(original, name), name
        assert copy.sys_flag == original.sys_flag & ~SYS_TRANSACTION_MASK
        assert (copy.topic, copy.queue_id, copy.queue_offset) == ("elsewhere", at, 5 + at)
        assert copy.magic == MAGIC_V1
        assert copy.physical_offset == 1000 + copies.bounds[at]
        assert (copy.store_timestamp, copy.prepared_transaction_offset) == (77, 0)


def test_requested_changes_are_made_and_other_fields_are_kept():
    records = [
        raw_record(topic=b"half", body=b"a", properties=b"TAGS\x01x\x02UNIQ_KEY\x01u\x02"),
        raw_record(topic=b"half", body=b"b", properties=b"UNIQ_KEY\x01v\x02"),
    ]
    blocks = pa.array([b"UNIQ_KEY\x01u\x02TAGS\x01y\x02", b"UNIQ_KEY\x01v\x02N\x011\x02"])
    changes = Changes(
        transaction=COMMIT, prepared=np.array([4000, 5000]), properties=blocks, forget=True
    )
    copies = copy_records(fields_of(records), np.array([0, 1]), "t", np.zeros(2, np.int32), changes)
    assert copies.tags_codes.tolist() == [java_hash("y"), 0]
    first, second = placed(copies)
    assert (first.body, second.body) == (b"a", b"b")
    assert [one.properties for one in (first, second)] == blocks.to_pylist()
    assert first.sys_flag & SYS_TRANSACTION_MASK == second.sys_flag & SYS_TRANSACTION_MASK == COMMIT
    assert first.prepared_transaction_offset == 4000
    assert second.prepared_transaction_offset == 5000
    assert (first.flag, first.reconsume_times) == (0, 0)


def test_copies_without_a_unique_id_have_only_their_other_keys():
    records = [
        raw_record(topic=b"half", body=b"a", properties=b"TAGS\x01d\x02"),
        raw_record(topic=b"half", body=b"b", properties=b"KEYS\x01k\x02"),
    ]
    copies = copy_records(fields_of(records), np.array([0, 1]), "t", np.zeros(2, np.int32))
    assert copies.keys is not None
    assert copies.keys.rows.tolist() == [1]
    assert copies.keys.hashes.tolist() == [abs(java_hash("t#k"))]
