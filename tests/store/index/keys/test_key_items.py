"""The index items of a run of the log are those of its records."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.index_file import key_hash
from pyrocket.formats.properties import decode_properties
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.keys.key_items import key_items
from support.strategies import raw_record, well_formed_blocks

BASE = 4096


def run_of(rows):
    """Consecutive records; rows are (topic, sysFlag, properties)."""
    records, at = [], BASE
    for number, (topic, sys_flag, properties) in enumerate(rows):
        records.append(
            raw_record(
                topic=topic,
                sys_flag=sys_flag,
                properties=properties,
                physical_offset=at,
                store_timestamp=1000 + number,
            )
        )
        at += len(records[-1])
    sizes = np.array([len(record) for record in records], np.int64)
    starts = np.cumsum(sizes) - sizes
    return RecordFields(pa.py_buffer(b"".join(records)), BASE, starts, sizes), starts + BASE


def one_by_one(rows, offsets):
    for number, (topic, sys_flag, block) in enumerate(rows):
        properties = decode_properties(block)
        words = [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")]
        for word in filter(None, words):
            if sys_flag & 0xC != 0xC:
                yield key_hash(topic.decode(), word), int(offsets[number]), 1000 + number


ROWS = st.tuples(
    st.sampled_from([b"T", b"%RETRY%g"]), st.sampled_from([0, 1, 4, 8, 12]), well_formed_blocks()
)


@given(st.lists(ROWS, min_size=1, max_size=12))
def test_items_are_those_of_the_messages_in_order(rows):
    run, offsets = run_of(rows)
    items = key_items(run)
    columns = items.hashes.tolist(), items.offsets.tolist(), items.times.tolist()
    assert list(zip(*columns, strict=True)) == list(one_by_one(rows, offsets))


def hashes(*words):
    return [key_hash("T", word) for word in words]


def test_the_unique_id_comes_first_then_the_keys():
    run, _ = run_of([(b"T", 0, b"KEYS\1b  a \2UNIQ_KEY\1id with space\2"), (b"T", 0, b"KEYS\1 \2")])
    assert key_items(run).hashes.tolist() == hashes("id with space", "b", "a")
