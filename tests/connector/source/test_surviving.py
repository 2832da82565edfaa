"""Messages deleted while a task reads, or before a planned micro-batch is replayed."""

from functools import partial

import pyarrow as pa
import pytest
from pyrocket import LookupRequest, MessageFilter, ScanTally, Store, StoreSource
from pyrocket.errors import (
    OffsetOutOfRangeError,
    RecordDamagedError,
    StoreDamagedError,
    TopicNotFoundError,
    TransportError,
)
from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.source.task import Columns, read_locations, read_range
from pyspark_pyrocket.transport.path import PathSource
from support.offsets import span
from support.slices import decoded
from support.stores import SMALL, batch, log_files, overwrite

SKIP = LossPolicy(policy="skip")


@pytest.fixture
def store(tmp_path):
    """60 messages in several small log files, open for writing."""
    with Store.open(tmp_path / "store", create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(batch([f"{n:0200}".encode() for n in range(60)], 0), topic="t")
        yield store


def offsets(
    store, loss=SKIP, start=0, end=60, columns=("body", "queueOffset"), on_batch=None, **filtered
):
    """Return the offsets that are read; `on_batch` is called after each batch."""
    source, decoding = PathSource(store), Columns(tuple(columns), **filtered)
    read, each, tally = [], span("t", 0, start, end), ScanTally()
    scan = partial(decoding.of_range, source)
    for part in read_range(source, each, loss, scan, tally):
        assert part.schema.names == list(columns)
        read += [int(body) for body in part.column("body").to_pylist()]
        if on_batch:
            on_batch()
    return read


def clean(store):
    assert store.clean(hours=0).removals
    return store.min_offset("t", 0)


@pytest.mark.parametrize("columns", [("body",), ("queueOffset", "body"), ("body", "queueOffset")])
@pytest.mark.parametrize("policy", ["skip", "earliest", "latest"])
def test_messages_deleted_before_a_task_reads_are_skipped_and_counted(
    store, caplog, policy, columns
):
    first = clean(store)
    assert 0 < first < 60
    read = offsets(store, LossPolicy(policy=policy), start=3, end=58, columns=columns)
    assert read == list(range(first, 58))
    assert f"has lost {first - 3} messages" in caplog.text
    assert f"the rest of [3, 58): [{first}, 58)" in caplog.text


def test_messages_deleted_while_a_task_reads_are_skipped_and_counted(store, caplog):
    cleaned = []
    read = offsets(store, on_batch=lambda: cleaned or cleaned.append(clean(store)))
    gone = [number for number in range(60) if number not in read]
    assert read == sorted(read)
    assert gone == list(range(gone[0], cleaned[0]))
    assert f"has lost {len(gone)} messages" in caplog.text


def damage(store, *numbers, queue_id=0):
    """Flip a bit in the topic name of some messages."""
    for number in numbers:
        place = store.read("t", queue_id, number, 1)[0].physical_offset
        (file,) = [each for each in log_files(store.path) if 0 <= place - int(each.name) < 4096]
        at = place - int(file.name) + 88 + 200 + 1
        overwrite(file, bytes([file.read_bytes()[at] ^ 1]), at)


@pytest.mark.parametrize("policy", ["skip", "earliest", "latest"])
@pytest.mark.parametrize("damaged", [[0], [59], [7, 8, 30], list(range(20, 40))], ids=str)
def test_only_damaged_messages_are_skipped_and_counted(store, caplog, policy, damaged):
    damage(store, *damaged)
    read = offsets(store, LossPolicy(policy=policy), where=MessageFilter())
    assert read == [number for number in range(60) if number not in damaged]
    lost = [each for each in caplog.records if "has lost 1 message;" in each.message]
    assert len(lost) == len(damaged)


def test_by_default_a_damaged_message_fails_the_task(store):
    damage(store, 7)
    with pytest.raises(RecordDamagedError, match="corrupt record"):
        offsets(store, LossPolicy())


def test_by_default_a_task_fails_with_an_error_that_names_the_remedy(store):
    clean(store)
    with pytest.raises(OffsetOutOfRangeError, match="set the option onDataLoss to skip"):
        offsets(store, LossPolicy())


def test_all_messages_of_a_deleted_topic_are_lost(store, caplog):
    store.topics.delete("t")
    assert offsets(store) == []
    assert "has lost 60 messages" in caplog.text
    with pytest.raises(TopicNotFoundError):
        offsets(store, LossPolicy())


def test_messages_of_a_recreated_topic_are_not_read_in_place_of_older_ones(store):
    store.topics.delete("t")
    store.topics.create("t", read_queues=1, write_queues=1)
    store.append_batch(batch([b"1000"] * 5, 0), topic="t")
    assert offsets(store) == []


def test_a_range_truncated_by_a_crash_is_read_up_to_its_end(store, caplog):
    assert offsets(store, start=55, end=70) == list(range(55, 60))
    assert "has lost 10 messages" in caplog.text


def test_an_unreadable_message_is_not_a_loss(store):
    """Neither corruption nor a temporary error may be skipped."""

    def damaged(each, tally):
        raise StoreDamagedError("a bad entry")
        yield

    def odd(each, tally):
        raise OffsetOutOfRangeError("said without a reason")
        yield

    def lost(each, tally):
        raise TransportError("the connection was lost", repeat_is_safe=True)
        yield

    for scan, error in (
        (damaged, StoreDamagedError),
        (odd, OffsetOutOfRangeError),
        (lost, TransportError),
    ):
        parts = read_range(PathSource(store), span("t", 0, 0, 60), SKIP, scan, ScanTally())
        with pytest.raises(error):
            list(parts)


@pytest.fixture
def sparse(store, monkeypatch):
    """Append sixty more messages, 60 to 119, of which the filter selects 60, 90 and 119."""
    monkeypatch.setattr("pyrocket.formats.record_slice._MIN_ROWS", 1)
    wanted = [n in (0, 30, 59) for n in range(60)]
    rows = batch(
        [f"{n:0200}".encode() for n in range(60, 120)],
        0,
        tags=pa.array(["A" if one else "B" for one in wanted]),
        properties=pa.array(
            [[("price", "9" if one else "1")] for one in wanted], pa.map_(pa.string(), pa.string())
        ),
    )
    store.append_batch(rows, topic="t")
    return store


def last_of_file(store, offset):
    """Return the last queue offset in the same log file as `offset`."""
    files = [one.physical_offset // SMALL.log_file_bytes for one in store.read("t", 0, 0, 120)]
    return max(at for at, file in enumerate(files) if file == files[offset])


@pytest.mark.parametrize("options", [{"sql": "price > 5"}, {"tags": "A"}], ids=str)
def test_messages_that_a_filter_has_skipped_are_not_counted_as_lost(sparse, caplog, options):
    """They are skipped by their tag hashes, without checking whether the log still has them."""
    came_to = 90 if "tags" in options else last_of_file(sparse, 60) + 1
    cleaned = []
    read = offsets(
        sparse,
        start=60,
        end=120,
        on_batch=lambda: cleaned or cleaned.append(clean(sparse)),
        where=MessageFilter.parse(**options),
    )
    assert read == [60, 119]
    assert 90 < cleaned[0] < 119
    assert f"has lost {cleaned[0] - came_to} messages" in caplog.text
    assert f"the rest of [{came_to}, 120): [{cleaned[0]}, 120)" in caplog.text


@pytest.fixture
def located(store, monkeypatch):
    """Return the locations of every second message of a second queue."""
    keys = pa.array([["k"] if n % 2 else [] for n in range(60)], pa.list_(pa.string()))
    tags = pa.array(["A" if n % 4 == 3 else "B" for n in range(60)])
    store.topics.update("t", read_queues=2, write_queues=2)
    rows = batch([f"{n:0200}".encode() for n in range(60)], 1, keys=keys, tags=tags)
    store.append_batch(rows, topic="t")
    (places,) = store.lookup.locate(LookupRequest(topics=["t"], keys=["k"])).locations
    return places


def found(store, places, loss=SKIP, on_batch=None, **filtered):
    """Return the messages read at the locations; `on_batch` is called after each batch."""

    def scan(places, tally):
        return decoded(StoreSource(store).slices_at(places, tally=tally, **filtered))

    read = []
    for part in read_locations(PathSource(store), places, loss, scan):
        read += [int(body) for body in part.column("body").to_pylist()]
        if on_batch:
            on_batch()
    return read


def first_left(store):
    store.clean(hours=0)
    return store.min_offset("t", 1)


def test_a_message_found_by_key_and_deleted_before_it_is_read_is_a_loss(store, located, caplog):
    first = first_left(store)
    left = [n for n in range(1, 60, 2) if n >= first]
    assert 0 < len(left) < 30
    assert found(store, located) == left
    assert f"topic 't' queue 1 has lost {30 - len(left)} messages" in caplog.text
    with pytest.raises(OffsetOutOfRangeError, match=r"again\. To continue.* onDataLoss to skip"):
        found(store, located, LossPolicy())


def test_a_damaged_message_found_by_key_is_skipped(store, located, caplog):
    damage(store, 7, 31, queue_id=1)
    assert found(store, located) == [n for n in range(1, 60, 2) if n not in (7, 31)]
    assert len([one for one in caplog.records if "has lost 1 message;" in one.message]) == 2
    with pytest.raises(RecordDamagedError):
        found(store, located, LossPolicy())


@pytest.mark.parametrize("tags", ["*", "A"])
def test_messages_found_by_key_and_deleted_while_being_read_are_counted_once(
    store, located, caplog, tags
):
    cleaned = []
    where = MessageFilter.parse(tags=tags)
    read = found(store, located, where=where, on_batch=lambda: cleaned or clean_now(cleaned, store))
    wanted = [n for n in range(1, 60, 2) if tags == "*" or n % 4 == 3]
    gone = [n for n in wanted if n not in read]
    assert read == sorted(set(read))
    assert max(gone) < cleaned[0]
    assert read[0] == wanted[0]
    assert caplog.text.count("has lost") == 1


def clean_now(cleaned, store):
    cleaned.append(first_left(store))


def test_a_damaged_message_found_by_key_is_not_a_loss(store, located):
    def odd(places, tally):
        raise OffsetOutOfRangeError("said without a reason")
        yield

    with pytest.raises(OffsetOutOfRangeError, match="without a reason"):
        list(read_locations(PathSource(store), located, SKIP, odd))
