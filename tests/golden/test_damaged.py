"""No file is trusted: damage is reported, or does not change the values that are checked."""

import shutil
from contextlib import suppress

import numpy as np
import pytest
from golden.java import CLEAN, GOLDEN
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyrocket import SCAN_COLUMNS, PyrocketError, Store
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.queue_entry import build_entries
from support.shares import TIMES

COLUMNS = [name for name in SCAN_COLUMNS if name != "bodyText"]
FILES = [
    "commitlog/00000000000000000000",
    "commitlog/00000000000000004096",
    "consumequeue/TopicTest/0/00000000000000000000",
    "consumequeue/TopicTest/0/00000000000000000200",
    "checkpoint",
]
ENTRY_FILES = FILES[2:4]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """One copy of the store for all examples of a test; each example restores the files that it has
    changed.
    """
    return shutil.copytree(GOLDEN / CLEAN, tmp_path_factory.mktemp("damaged") / CLEAN)


def read_all(store):
    """Read all messages of TopicTest, one by one and in columns."""
    for queue_id in (0, 1):
        with suppress(PyrocketError):
            known = store.offsets("TopicTest")[queue_id]
            messages = store.read("TopicTest", queue_id, known.minimum, 100)
            offsets = [message.queue_offset for message in messages]
            assert offsets == list(range(known.minimum, known.minimum + len(messages)))
            assert {(each.topic, each.queue_id) for each in messages} <= {("TopicTest", queue_id)}
        with suppress(PyrocketError):
            known = store.offsets("TopicTest")[queue_id]
            batches = store.scan("TopicTest", queue_id, known.minimum, known.maximum, COLUMNS)
            rows = sum(batch.num_rows for batch in batches)
            assert rows == known.maximum - known.minimum


def read_damaged(root, name, data):
    whole = (root / name).read_bytes()
    (root / name).write_bytes(data)
    try:
        with Store.open(root, read_only=True) as store:
            read_all(store)
    except PyrocketError:
        pass
    finally:
        (root / name).write_bytes(whole)


def flipped(data, bits):
    broken = bytearray(data)
    for bit in bits:
        broken[bit // 8 % len(broken)] ^= 1 << bit % 8
    return bytes(broken)


BITS = st.lists(st.integers(0, 2**20), min_size=1, max_size=4)


@settings(max_examples=10 * TIMES)
@given(st.sampled_from(FILES), BITS)
def test_a_reader_reports_flipped_bits_or_returns_correct_values(copy, name, bits):
    read_damaged(copy, name, flipped((copy / name).read_bytes(), bits))


@settings(max_examples=8 * TIMES)
@given(st.sampled_from(FILES), st.data())
def test_a_reader_reports_a_truncated_file(copy, name, data):
    whole = (copy / name).read_bytes()
    read_damaged(copy, name, whole[: data.draw(st.integers(0, len(whole) - 1))])


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**62),
    st.sampled_from([0, 172, 344, 4096, 8191, 8192, 2**31 - 1, 2**40, -1, -4096]),
)
SIZES = st.one_of(
    st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 90, 91, 172, 4096, 2**31 - 1])
)


@settings(max_examples=15 * TIMES)
@given(
    st.sampled_from(ENTRY_FILES),
    st.integers(0, 9),
    st.lists(st.tuples(NUMBERS, SIZES), min_size=1, max_size=3),
)
@example(ENTRY_FILES[0], 0, [(172, 172)])
@example(ENTRY_FILES[0], 1, [(0, 172)])
@example(ENTRY_FILES[0], 3, [(4000, 172)])
@example(ENTRY_FILES[0], 3, [(-4096, 172)])
@example(ENTRY_FILES[0], 3, [(1032, 2**31 - 1)])
def test_a_reader_reports_arbitrary_entries_or_returns_correct_values(copy, name, first, entries):
    offsets, sizes = zip(*entries, strict=True)
    made = build_entries(np.array(offsets), np.array(sizes), np.zeros(len(entries), np.int64))
    whole = (copy / name).read_bytes()
    data = whole[: first * 20] + made.tobytes()
    read_damaged(copy, name, data[:200] + whole[len(data) :])


@settings(max_examples=8 * TIMES)
@given(st.sampled_from(FILES), BITS, st.booleans())
def test_a_writer_recovers_from_flipped_bits_or_reports_them(tmp_path_factory, name, bits, clean):
    root = shutil.copytree(GOLDEN / CLEAN, tmp_path_factory.mktemp("broken") / CLEAN)
    (root / name).write_bytes(flipped((root / name).read_bytes(), bits))
    if not clean:
        (root / "abort").touch()
    try:
        with Store.open(root) as store:
            read_all(store)
    except PyrocketError:
        pass
    finally:
        shutil.rmtree(root.parent)


def with_entries(tmp_path, first, offsets, sizes):
    """Return a copy of the store with other entries in queue 0, starting at `first`."""
    root = shutil.copytree(GOLDEN / CLEAN, tmp_path / CLEAN)
    bad = build_entries(np.array(offsets), np.array(sizes), np.zeros(len(sizes)))
    with (root / ENTRY_FILES[0]).open("r+b") as file:
        file.seek(first * 20)
        file.write(bad.tobytes())
    return root


def test_an_entry_near_the_greatest_possible_log_offset_is_damage(tmp_path):
    root = with_entries(tmp_path, 1, [2**63 - 100], [172])
    with Store.open(root, read_only=True) as store, pytest.raises(PyrocketError):
        list(store.scan("TopicTest", 0, 1, 2))


@pytest.mark.parametrize("physical_offset", [-4096, 2**40])
def test_a_look_up_by_time_reports_a_bad_entry(tmp_path, physical_offset):
    root = with_entries(tmp_path, 3, [physical_offset] * 5, [172] * 5)
    with Store.open(root, read_only=True) as store, pytest.raises(PyrocketError):
        store.offset_by_time("TopicTest", 0, 1795225518400)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ('"perm"', '"pern"'),
        ('"perm":6', '"perm":"x"'),
        ('"readQueueNums":4', '"readQueueNums":null'),
        ('"topicConfigTable":{', '"topicConfigTable":5,"x":{'),
    ],
)
def test_an_invalid_topic_table_is_reported_as_damage_that_names_it(tmp_path, good, bad):
    root = shutil.copytree(GOLDEN / CLEAN, tmp_path / CLEAN)
    path = root / "config/topics.json"
    path.write_text(path.read_text().replace(good, bad))
    with Store.open(root, read_only=True) as store:
        assert "TopicTest" in store.topics.all(), "RocketMQ has written a backup"
    (root / "config/topics.json.bak").unlink()
    with Store.open(root, read_only=True) as store, pytest.raises(StoreDamagedError):
        store.topics.all()
