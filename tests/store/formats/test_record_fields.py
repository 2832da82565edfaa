"""Raw records as arrays of fields: after the check, lengths can safely be added to positions."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from support.strategies import raw_record, slices

FIELDS = ("magic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp")


def fields_of(piece, data=None):
    buffer = pa.py_buffer(piece.data if data is None else data)
    return RecordFields(buffer, piece.base, np.array(piece.starts), np.array(piece.sizes))


def check_run(fields, topic, queue_id, first_offset):
    fields.check_places(topic, queue_id, np.arange(first_offset, first_offset + len(fields)))


@given(slices(), st.booleans())
def test_the_fields_of_a_slice_equal_those_of_single_records(piece, as_a_run):
    fields = fields_of(piece)
    if as_a_run:
        check_run(fields, piece.topic, piece.queue_id, piece.first_offset)
    else:
        fields.check_structure()
    records = [decode_record(record) for record in piece.records]
    assert len(fields) == len(records)
    for name in FIELDS:
        assert getattr(fields, name).tolist() == [getattr(one, name) for one in records], name
    assert fields.bodies().to_pylist() == [one.body for one in records]
    assert fields.topics.to_pylist() == [one.topic.encode() for one in records]
    assert fields.properties.to_pylist() == [one.properties for one in records]


def whole(record, *, base=0, size=None, start=0, data=None):
    """Return the fields of a record, which may be invalid."""
    data = record if data is None else data
    size = len(record) if size is None else size
    return RecordFields(pa.py_buffer(data), base, np.array([start]), np.array([size]))


RECORD = raw_record(topic=b"TopicTest", body=b"hello", properties=b"a\x01b\x02")
V2_RECORD = raw_record(topic=b"TopicTest", body=b"hello", version=2)


def with_bytes(record, at, data):
    return record[:at] + data + record[at + len(data) :]


LIES = {
    "impossible size": whole(RECORD, size=90),
    "extends beyond the file": whole(RECORD, data=RECORD[:-1]),
    "extends beyond": whole(RECORD, start=-1),
    "beyond the file": whole(RECORD, start=2**63 - 100),
    "size differs": whole(RECORD, size=len(RECORD) - 1),
    "no record starts here": whole(with_bytes(RECORD, 4, b"\0\0\0\0")),
    "another physical offset": whole(RECORD, base=1),
    "header does not fit": whole(with_bytes(raw_record(topic=b""), 36, b"\0\0\0\x30")),
    "body does not fit": whole(with_bytes(RECORD, 84, b"\0\0\x10\0")),
    "its body": whole(with_bytes(RECORD, 84, b"\xff\xff\xff\xff")),
    "topic does not fit": whole(with_bytes(RECORD, 93, b"\xff")),
    "its topic": whole(with_bytes(V2_RECORD, 93, b"\xff\xf7")),
    "do not add up": whole(with_bytes(RECORD, 93, b"\x08")),
    "add up": whole(with_bytes(RECORD, 103, b"\x80\x04")),
}


@pytest.mark.parametrize(("reason", "fields"), LIES.items(), ids=list(LIES))
def test_the_error_for_a_record_with_wrong_lengths_has_its_position(reason, fields):
    where = fields.base + int(fields.starts[0])
    with pytest.raises(StoreDamagedError, match=f"at log offset {where}: .*{reason}"):
        fields.check_structure()


@pytest.mark.parametrize(
    ("reason", "queue"),
    [
        ("not of queue 1", ("TopicTest", 1, 0)),
        ("queue offset differs", ("TopicTest", 0, 1)),
        ("not of topic 'TopicTesT'", ("TopicTesT", 0, 0)),
        ("not of topic 'topicTest'", ("topicTest", 0, 0)),
        ("not of topic 'Topic'", ("Topic", 0, 0)),
    ],
)
@pytest.mark.parametrize("record", [RECORD, V2_RECORD], ids=["v1", "v2"])
def test_a_record_of_another_queue_is_reported(record, reason, queue):
    with pytest.raises(StoreDamagedError, match=reason):
        check_run(whole(record), *queue)


def test_the_first_of_several_invalid_records_is_reported():
    good, bad = raw_record(), raw_record(physical_offset=5)
    data = good + bad + bad
    starts = np.arange(3) * len(good)
    fields = RecordFields(pa.py_buffer(data), 0, starts, np.full(3, len(good)))
    with pytest.raises(StoreDamagedError, match=f"at log offset {len(good)}:"):
        fields.check_structure()


def test_a_record_inside_the_body_of_another_record_is_an_error():
    inner = raw_record(topic=b"T", physical_offset=88, queue_offset=1)
    outer = raw_record(topic=b"T", body=inner)
    starts, sizes = np.array([0, 88]), np.array([len(outer), len(inner)])
    fields = RecordFields(pa.py_buffer(outer), 0, starts, sizes)
    with pytest.raises(StoreDamagedError, match="overlap"):
        fields.check_structure()


def survives(fields, run=None):
    """Return whether the structure is valid, after checking that then all fields are readable."""
    try:
        if run is None:
            fields.check_structure()
        else:
            check_run(fields, *run)
    except StoreDamagedError:
        return False
    for runs in (fields.bodies(), fields.topics, fields.properties):
        runs.validate(full=True)
    return True


@given(slices(), st.data())
def test_truncated_slice_is_damaged(piece, data):
    end = piece.starts[-1] + piece.sizes[-1]
    length = data.draw(st.integers(0, end - 1))
    assert not survives(fields_of(piece, piece.data[:length]))


@given(slices(), st.data())
def test_after_flipped_bits_damage_is_reported_or_all_fields_can_be_read(piece, data):
    broken = bytearray(piece.data)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    run = data.draw(st.sampled_from([None, (piece.topic, piece.queue_id, piece.first_offset)]))
    survives(fields_of(piece, bytes(broken)), run)


NUMBERS = st.one_of(
    st.integers(-300, 700), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**31, 2**63 - 91])
)


@given(slices(), st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4), st.data())
def test_entries_with_arbitrary_positions_are_reported_unless_a_record_is_there(
    piece, entries, data
):
    known = list(zip(piece.starts, piece.sizes, strict=True))
    chosen = data.draw(st.lists(st.sampled_from([*known, *entries]), min_size=1, max_size=4))
    starts, sizes = np.array(chosen, np.int64).T
    fields = RecordFields(pa.py_buffer(piece.data), piece.base, starts, sizes)
    if survives(fields):
        assert set(chosen) <= set(known)


def test_the_length_of_a_long_topic_is_signed_as_in_java():
    for length in (32767, 32768, 40_000):
        record = raw_record(topic=b"t" * length, version=2)
        sizes = np.array([len(record)])
        fields = RecordFields(pa.py_buffer(record), 0, np.zeros(1, np.int64), sizes)
        if length < 32768:
            fields.check_structure()
            assert len(decode_record(record).topic) == length
            continue
        with pytest.raises(StoreDamagedError):
            decode_record(record)
        with pytest.raises(StoreDamagedError, match="topic does not fit"):
            fields.check_structure()
