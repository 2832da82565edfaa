"""Reading a few messages of many queues together returns the same rows as a scan of each queue."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyrocket import SCAN_COLUMNS, MessageFilter, ScanTally, Store, StoreConfig, StoreSource
from pyrocket.errors import SchemaError, TopicNotFoundError
from support.shares import TIMES
from support.slices import range_of, scan_ranges
from support.stores import SMALL, batch, log_files, overwrite

QUEUES = 6
COLUMNS = tuple(SCAN_COLUMNS)
NOISE = random.Random(1).randbytes(1_000_000)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Queues of different lengths, in many small log files, with another topic between them."""
    path = tmp_path_factory.mktemp("together") / "store"
    with Store.open(path, create=True, config=SMALL) as store:
        for topic in ("t", "other"):
            store.topics.create(topic, read_queues=QUEUES, write_queues=QUEUES)
        for turn in range(9):
            for queue in range(turn % QUEUES, QUEUES):
                tags = pa.array([["A", "B", None][(turn + queue) % 3]], pa.string())
                properties = pa.array([[("n", str(turn))]], pa.map_(pa.string(), pa.string()))
                body = b"%d-%d" % (queue, turn) + b"x" * 100 * queue
                row = batch([body], queue, tags=tags, properties=properties)
                store.append_batch(row, topic="t")
                store.append_batch(batch([b"y" * 500]), topic="other")
    with Store.open(path, read_only=True, config=SMALL) as store:
        yield store


def one_by_one(store, ranges, columns=COLUMNS, **more):
    batches = [
        part
        for queue, start, end in ranges
        for part in store.scan("t", queue, start, end, columns, **more)
    ]
    schema = pa.schema([(name, SCAN_COLUMNS[name]) for name in columns])
    return pa.Table.from_batches(batches, schema=schema)


def parts_of(store):
    """Ranges of some queues in any order; ranges may be empty."""
    queues = st.permutations(range(QUEUES)).flatmap(
        lambda order: st.integers(1, QUEUES).map(lambda count: order[:count])
    )

    def ranges(data):
        found = []
        for queue in data.draw(queues):
            known = store.offsets("t")[queue]
            start = data.draw(st.integers(known.minimum, known.maximum))
            found.append((queue, start, data.draw(st.integers(start, known.maximum))))
        return found

    return ranges


@settings(max_examples=12 * TIMES)
@given(data=st.data())
def test_all_columns_equal_those_of_separate_scans(store, data):
    ranges = parts_of(store)(data)
    found = scan_ranges(store, "t", ranges, COLUMNS, verify_crc=True)
    assert pa.Table.from_batches([found]) == one_by_one(store, ranges)


@settings(max_examples=12 * TIMES)
@given(data=st.data())
@pytest.mark.parametrize("wanted", [{"tags": "A"}, {"sql": "n > 3"}, {"tags": "B", "sql": "n < 9"}])
def test_filters_and_their_counts_equal_those_of_separate_scans(store, wanted, data):
    ranges, where = parts_of(store)(data), MessageFilter.parse(**wanted)
    ours, theirs = ScanTally(), ScanTally()
    found = scan_ranges(store, "t", ranges, COLUMNS, where=where, tally=ours)
    assert pa.Table.from_batches([found]) == one_by_one(store, ranges, where=where, tally=theirs)
    assert ours == theirs


def test_ranges_with_missing_messages_are_not_read_together(store):
    end = store.max_offset("t", 1)
    assert scan_ranges(store, "t", [(0, 0, 1), (1, 0, end + 1)]) is None
    assert scan_ranges(store, "t", [(0, 0, 1), (QUEUES + 1, 0, 1)]) is None
    assert scan_ranges(store, "t", []) is None


def test_an_unknown_column_or_topic_is_an_error(store):
    with pytest.raises(SchemaError, match="nonsense"):
        StoreSource(store).joined_slice([range_of("t", 0, 0, 1)]).decode_in_order(["nonsense"])
    with pytest.raises(TopicNotFoundError):
        scan_ranges(store, "missing", [(0, 0, 1)])


@pytest.mark.parametrize("bodies", [[NOISE] * 9, [b"z"] * 20_000])
def test_ranges_larger_than_a_slice_are_not_read_together(tmp_path, bodies):
    config = StoreConfig(log_file_bytes=1 << 24)
    with Store.open(tmp_path / "store", create=True, config=config) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        store.append_batch(batch(bodies, 0), topic="t")
        store.append_batch(batch([b"x"], 1), topic="t")
        assert scan_ranges(store, "t", [(0, 0, len(bodies)), (1, 0, 1)]) is None
        assert scan_ranges(store, "t", [(0, 0, 5), (1, 0, 1)]).num_rows == 6


def test_ranges_with_a_damaged_message_are_not_read_together(tmp_path):
    path = tmp_path / "store"
    with Store.open(path, create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        store.append_batch(batch([b"a", b"b"], [0, 1]), topic="t")
        ranges = [(0, 0, 1), (1, 0, 1)]
        assert scan_ranges(store, "t", ranges, ["body"])["body"].to_pylist() == [b"a", b"b"]
        where = store.read("t", 1, 0)[0].physical_offset % SMALL.log_file_bytes
        overwrite(log_files(path)[0], b"\x00", where + 88)
        assert scan_ranges(store, "t", ranges, ["body"], verify_crc=True) is None
        overwrite(log_files(path)[0], b"\xff", where)
        assert scan_ranges(store, "t", ranges, ["body"]) is None
