"""Filtered scans return exactly the selected messages and do not read the others."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyrocket import SCAN_COLUMNS, MessageFilter, ScanTally, Store
from pyrocket.errors import OffsetOutOfRangeError, SchemaError, StoreDamagedError
from pyrocket.formats import record_columns, record_slice
from pyrocket.index.queues import record_fetch, scanner
from support.inner import inner
from support.shares import TIMES
from support.slices import scan_ranges
from support.stores import SMALL, FakeClock, batch, log_files, message, overwrite, queue_files

MAP = pa.map_(pa.string(), pa.string())
TAGS = ["A", "B", "AaAa", "BBBB", None]
"""The third and the fourth tag have the same hash."""

FILTERS = [
    {"tags": "A"},
    {"tags": "A || BBBB"},
    {"tags": "AaAa"},
    {"tags": "C"},
    {"tags": "*"},
    {"sql": "price > 5"},
    {"sql": "price IS NULL OR price BETWEEN 2 AND 4"},
    {"sql": "TAGS = 'AaAa' AND price <> 3"},
    {"sql": "TAGS IN ('A', 'B') OR TAGS = 'BBBB'"},
    {"sql": "NOT (region CONTAINS 'EU')"},
    {"tags": "A || B", "sql": "region = 'EU' OR price = 1"},
    {"sql": "FALSE"},
]


def append(store, rows, body_bytes=100):
    """Append rows of (tags, price, region) to queue 0 of topic t, with their numbers as bodies."""
    properties = [
        [(name, value) for name, value in zip(("price", "region"), row[1:], strict=True) if value]
        for row in rows
    ]
    store.append_batch(
        batch(
            [b"%06d" % number + b"." * body_bytes for number in range(len(rows))],
            0,
            tags=pa.array([row[0] for row in rows], pa.string()),
            properties=pa.array(properties, MAP),
        ),
        topic="t",
    )


def rows_of(parts):
    return [row for part in parts for row in part.to_pylist()]


def wanted(store, where, start=0, end=None, columns=("queueOffset", "body"), **options):
    end = store.max_offset("t", 0) if end is None else end
    return rows_of(store.scan("t", 0, start, end, columns, where=where, **options))


@pytest.fixture
def tagged(store):
    """Forty messages with the tags A, B and none in rotation; every tenth has no price."""
    append(
        store, [(("A", "B", None)[n % 3], None if n % 10 == 9 else str(n), "EU") for n in range(40)]
    )
    return store


@pytest.fixture(
    params=[
        "as it is",
        "small slices",
        "piece by piece",
        "records near each other are read together",
    ]
)
def ways(request, monkeypatch, store):
    """Scan normally, with very small slices, or by reading single or nearby records."""
    if request.param == "small slices":
        monkeypatch.setattr(record_slice, "_MIN_ROWS", 3)
        inner(store).scanner.slice_rows = inner(store).scanner.entries_at_once = 3
    if request.param.startswith("piece"):
        monkeypatch.setattr(scanner, "is_sparse", lambda offsets, sizes: len(offsets) > 0)
        monkeypatch.setattr(record_fetch, "_MAX_GAP", 400 if "near" in request.param else 0)


@pytest.mark.usefixtures("ways")
def test_a_filtered_scan_returns_exactly_the_messages_that_match(tagged):
    columns, messages = tuple(SCAN_COLUMNS), tagged.read("t", 0, 0, 40)
    every = wanted(tagged, None, columns=columns)
    for options in FILTERS:
        where = MessageFilter.parse(**options)
        found = wanted(tagged, where, columns=columns, verify_crc=True)
        one_by_one = [m.queue_offset for m in messages if where.matches(m.properties)]
        assert [row["queueOffset"] for row in found] == one_by_one, options
        assert found == [every[offset] for offset in one_by_one], options


@settings(max_examples=15 * TIMES, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(TAGS),
            st.sampled_from([None, "1", "3", "7", "x", "2.5"]),
            st.sampled_from([None, "EU", "US"]),
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from(FILTERS),
    st.data(),
)
def test_a_filtered_scan_equals_a_scan_followed_by_a_filter(tmp_path_factory, rows, options, data):
    path, where = tmp_path_factory.mktemp("filtered") / "store", MessageFilter.parse(**options)
    with Store.open(path, create=True, config=SMALL, clock=FakeClock()) as store:
        append(store, rows, data.draw(st.sampled_from([0, 10, 900])))
        start = data.draw(st.integers(0, len(rows)))
        end = data.draw(st.integers(start, len(rows)))
        messages = store.read("t", 0, start, end - start) if end > start else []
        expected = [
            {"queueOffset": m.queue_offset, "body": m.body, "tags": m.tags}
            for m in messages
            if where.matches(m.properties)
        ]
        tally = ScanTally()
        columns = ("queueOffset", "body", "tags")
        assert wanted(store, where, start, end, columns, tally=tally) == expected
        assert (tally.entries, tally.messages) == (end - start, len(expected))


def test_records_excluded_by_tags_codes_are_not_read(tagged, path):
    place = tagged.read("t", 0, 1, 1)[0].physical_offset
    overwrite(log_files(path)[0], b"\xff" * 90, place - 4096)
    with pytest.raises(StoreDamagedError):
        wanted(tagged, None)
    with pytest.raises(StoreDamagedError):
        wanted(tagged, MessageFilter.parse(sql="price > 100"))
    tally = ScanTally()
    where = MessageFilter.parse(tags="A")
    assert [row["queueOffset"] for row in wanted(tagged, where, tally=tally)] == [*range(0, 40, 3)]
    assert (tally.entries, tally.records, tally.messages) == (40, 14, 14)


@pytest.mark.usefixtures("ways")
def test_a_damaged_record_that_may_match_is_an_error(tagged, path):
    place = tagged.read("t", 0, 3, 1)[0].physical_offset
    overwrite(log_files(path)[0], b"\xff", place - 4096 + 12)
    with pytest.raises(StoreDamagedError, match=f"log offset {place}: it is not of queue 0"):
        wanted(tagged, MessageFilter.parse(tags="A"))


def test_bodies_of_messages_that_do_not_match_are_not_read(tagged, path):
    place = tagged.read("t", 0, 5, 1)[0].physical_offset
    overwrite(log_files(path)[0], b"!", place - 4096 + 88)
    cheap = MessageFilter.parse(sql="price < 5")
    assert len(wanted(tagged, cheap, verify_crc=True)) == 5
    with pytest.raises(StoreDamagedError, match="checksum"):
        wanted(tagged, MessageFilter.parse(sql="price < 6"), verify_crc=True)


def test_missing_entries_are_reported_whether_or_not_they_would_match(tagged, path):
    overwrite(queue_files(path)[0], bytes(20), 7 * 20)
    with pytest.raises(OffsetOutOfRangeError, match="no message at offset 7"):
        wanted(tagged, MessageFilter.parse(tags="C"))


def test_an_entry_without_a_hash_is_looked_up_in_the_log(tagged, path):
    """A broker with extended queues stores an address instead of the hash."""
    overwrite(queue_files(path)[0], (5 - 2**63).to_bytes(8, "big", signed=True), 3 * 20 + 12)
    where = MessageFilter.parse(tags="A")
    assert [row["queueOffset"] for row in wanted(tagged, where)] == [*range(0, 40, 3)]


def test_due_times_in_the_entries_of_delayed_messages_are_not_compared_with_hashes_of_tags(store):
    store.append(message(b"later", tags="A", delay_level=1))
    where = MessageFilter.parse(tags="A")
    rows = rows_of(store.scan("SCHEDULE_TOPIC_XXXX", 0, 0, 1, ["body"], where=where))
    assert rows == [{"body": b"later"}]
    (row,) = scan_ranges(store, "SCHEDULE_TOPIC_XXXX", [(0, 0, 1)], where=where)["body"]
    assert row.as_py() == b"later"


def test_the_error_for_a_body_that_is_not_utf8_has_its_offset(store):
    store.append_batch(batch([b"a", b"b", b"\xff"], 0, tags=pa.array(["B", "A", "A"])), topic="t")
    with pytest.raises(SchemaError, match="offset 2 is not"):
        wanted(store, MessageFilter.parse(tags="A"), columns=["bodyText"])


def test_messages_read_before_a_loss_are_returned(tagged, path):
    inner(tagged).scanner.entries_at_once = 1
    overwrite(queue_files(path)[0], bytes(20), 9 * 20)
    found, parts = [], tagged.scan("t", 0, 0, 40, where=MessageFilter.parse(tags="A"))
    with pytest.raises(OffsetOutOfRangeError):
        found.extend(row for part in parts for row in part.to_pylist())
    assert [row["queueOffset"] for row in found] == [0, 3, 6]


@pytest.mark.parametrize("rows", [2, 10_000])
@pytest.mark.parametrize("options", [{}, {"tags": "A"}, {"sql": "price > 5"}], ids=str)
def test_the_tally_shows_the_progress_of_a_scan_before_a_loss(tagged, path, options, rows):
    inner(tagged).scanner.slice_rows = rows
    where, tally = MessageFilter.parse(**options), ScanTally()
    messages = tagged.read("t", 0, 0, 40)
    chosen = [one.queue_offset for one in messages if where.matches(one.properties)]
    (_, gone, *_) = log_files(path)
    lost = [one.queue_offset for one in messages if one.physical_offset >= int(gone.name)]
    gone.unlink()
    found, parts = [], tagged.scan("t", 0, 0, 40, where=where, tally=tally)
    with pytest.raises(StoreDamagedError, match=gone.name):
        found.extend(row["queueOffset"] for part in parts for row in part.to_pylist())
    assert 0 < lost[0] < 39
    # Some messages are skipped by their tags codes; the log is not read for them.
    looked_at = [at for at in lost if "tags" not in options or at in chosen]
    assert tally.entries == looked_at[0]
    assert found == [at for at in chosen if at < tally.entries]
    assert tally.messages == len(found) > 0


def test_few_messages_of_many_slices_are_joined_in_one_batch(tagged):
    inner(tagged).scanner.slice_rows = 2
    parts = [*tagged.scan("t", 0, 0, 40, where=MessageFilter.parse(tags="A"))]
    assert [part.num_rows for part in parts] == [14]


def test_bodies_that_inflate_to_many_bytes_are_split_into_several_batches(store, monkeypatch):
    monkeypatch.setattr(record_columns, "PLAIN_BYTES", 10_000)
    monkeypatch.setattr(record_slice, "_MIN_ROWS", 1)
    plain = [b"%d" % number * 6000 for number in range(30)]
    store.append_batch(batch(plain, 0, tags=pa.array(["A", "B"] * 15)), topic="t")
    where = MessageFilter.parse(tags="A")
    parts = [*store.scan("t", 0, 0, 30, ["body"], where=where)]
    assert [row["body"] for row in rows_of(parts)] == plain[::2]
    assert len(parts) > 1


@pytest.mark.usefixtures("ways")
def test_deleted_log_files_and_records_beyond_their_end_are_detected(tagged, path):
    where = MessageFilter.parse(tags="A")
    (first, *_) = log_files(path)
    data = first.read_bytes()
    first.write_bytes(data[:2000])
    with pytest.raises(StoreDamagedError, match=r"is shorter than|beyond the end of its log file"):
        wanted(tagged, where)
    first.unlink()
    with pytest.raises(OffsetOutOfRangeError, match=r"ha(s|ve) expired"):
        wanted(tagged, where)


def test_records_more_than_a_page_apart_are_sparse():
    def apart(gap, size, count=10):
        offsets = np.arange(count) * (gap + size)
        return scanner.is_sparse(offsets, np.full(count, size))

    assert apart(100_000, 1_000)
    assert not apart(10_000, 1_000)
    assert not apart(100_000, 100_000)
    assert not apart(0, 100, count=0)
