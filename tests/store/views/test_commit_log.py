"""The view has every record of the log, whatever the queues contain, and reports damage."""

import random
from dataclasses import replace

import pytest
from pyrocket import VIEW_COLUMNS, Store
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.formats import record_columns
from pyrocket.views import commit_log
from support.delivering import delay
from support.stores import SMALL, batch, filled, log_files, message, numbered, overwrite, reboot

COLUMNS = ["topic", "queueId", "queueOffset", "physicalOffset", "body", "inQueue"]


def rows(store, columns=COLUMNS, **options):
    return [
        row
        for part in store.views.plan("commitlog", **options)
        for found in store.views.scan(part, columns)
        for row in found.to_pylist()
    ]


def bodies(store, **options):
    return [row["body"] for row in rows(store, ["body"], **options)]


def test_records_of_all_topics_are_in_log_order(open_store):
    store = open_store()
    for number in range(90):
        store.append(message(b"%d" % number, topic="tuv"[number % 3], queue_id=number % 2))
    found = rows(store)
    assert [row["body"] for row in found] == [b"%d" % number for number in range(90)]
    assert [row["topic"] for row in found] == ["t", "u", "v"] * 30
    assert [row["queueId"] for row in found] == [0, 1] * 45
    assert len(store.views.plan("commitlog")) == len(log_files(store.path))


def test_every_column_equals_the_column_of_a_scan_of_the_queue(store):
    store.append(message(b"x" * 300, keys=["a", "b"], tags="T", properties={"p": "q"}))
    columns = [name for name in VIEW_COLUMNS["commitlog"] if name != "inQueue"]
    (scanned,) = store.scan("t", 0, 0, 1, columns)
    assert rows(store, columns) == scanned.to_pylist()


def test_messages_of_deleted_topics_are_included_with_their_topic(store):
    store.append(message(b"gone"))
    store.topics.delete("t")
    store.topics.create("t")
    store.append(message(b"new"))
    assert [(row["body"], row["inQueue"]) for row in rows(store)] == [
        (b"gone", False),
        (b"new", True),
    ]
    store.topics.delete("t")
    assert bodies(store, topics=["t"]) == [b"gone", b"new"]
    assert bodies(store, topics=["other"]) == []


def test_pending_messages_are_shown_under_their_system_topic(store):
    delay(store, 1, b"later")
    assert [(row["topic"], row["body"]) for row in rows(store)] == [
        ("SCHEDULE_TOPIC_XXXX", b"later")
    ]


def test_the_view_ends_at_the_end_of_the_log(open_store, path):
    """The bytes after the end are arbitrary, for example records of a killed writer."""
    store = open_store()
    last = store.append(message(b"x"))
    size = store.read("t", 0, 0)[0].store_size
    end = last.physical_offset + size - 4096
    record = log_files(path)[0].read_bytes()[end - size : end]
    ghost = record[:28] + (4096 + end).to_bytes(8, "big") + record[36:]
    overwrite(log_files(path)[0], ghost, end)
    assert bodies(store) == [b"x"]
    store.close(clean=False)
    reboot(path)
    assert bodies(open_store(read_only=True)) == [b"x", b"x"], (
        "only the shared state had the end of the log"
    )


def test_a_torn_end_of_a_copied_store_is_not_damage(path, open_store, caplog):
    filled(path, count=10).close(clean=False)
    reboot(path)
    last = log_files(path)[-1]
    data = last.read_bytes().rstrip(b"\0")
    overwrite(last, bytes(8), len(data) - 8)
    reader = open_store(read_only=True)
    assert bodies(reader) == numbered(9)
    assert "have no valid record" in caplog.text


@pytest.mark.parametrize("at", [0, 4, 28, 88, 150])
def test_damage_is_reported_or_skipped(path, open_store, caplog, at):
    store = filled(path, count=60)
    places = [one.physical_offset for one in store.read("t", 0, 0, 100)]
    store.close()
    bad = 30
    file = path / "commitlog" / f"{places[bad] // 4096 * 4096:020d}"
    overwrite(file, b"\x7e\x7d\x7c\x7b", places[bad] % 4096 + at)
    reader = open_store(read_only=True)
    with pytest.raises(StoreDamagedError, match=str(places[bad])) as caught:
        bodies(reader)
    assert caught.value.code == "LOG_DAMAGED"
    expected = numbered(60)
    del expected[bad]
    assert bodies(reader, skips_damage=True) == expected
    assert f"log offsets {places[bad]} to" in caplog.text


def test_the_error_for_a_part_whose_file_was_deleted_after_the_planning_names_the_cause(
    path, open_store
):
    filled(path, count=60).close()
    reader = open_store(read_only=True)
    first, *_ = reader.views.plan("commitlog")
    log_files(path)[0].unlink()
    with pytest.raises(OffsetOutOfRangeError, match="was deleted by cleaning"):
        list(reader.views.scan(first, ["body"]))


def test_a_file_that_a_broker_created_in_advance_is_not_damage(path, open_store):
    filled(path, count=5).close(clean=False)
    reboot(path)
    (path / "commitlog" / f"{8192:020d}").write_bytes(bytes(4096))
    assert bodies(open_store(read_only=True)) == numbered(5)


def test_a_large_part_is_returned_in_several_batches(open_store, monkeypatch):
    store = open_store(config=replace(SMALL, log_file_bytes=1 << 20))
    store.append_batch(batch(numbered(500), 0), topic="t")
    monkeypatch.setattr(commit_log, "SLICE_ROWS", 64)
    (part,) = store.views.plan("commitlog")
    sizes = [found.num_rows for found in store.views.scan(part, ["body"])]
    assert (sum(sizes), max(sizes)) == (500, 64)
    assert bodies(store) == numbered(500)


def test_large_inflated_bodies_are_returned_in_several_batches(open_store, monkeypatch):
    store = open_store(config=replace(SMALL, log_file_bytes=1 << 20))
    text = [bytes([65 + n]) * 8000 for n in range(20)]
    store.append_batch(batch(text, 0), topic="t")
    monkeypatch.setattr(record_columns, "PLAIN_BYTES", 30_000)
    assert bodies(store) == text


def test_no_record_is_made_up_from_damaged_bytes(path):
    """After any change of bytes, the view contains only existing records, in their order."""
    rng = random.Random(7)
    store = filled(path, count=40)
    store.close()
    whole = numbered(40)
    for _ in range(40):
        file = rng.choice(log_files(path))
        before = file.read_bytes()
        at = rng.randrange(4096)
        overwrite(file, rng.randbytes(rng.choice([1, 4, 64])), min(at, 4096 - 64))
        with Store.open(path, read_only=True) as reader:
            found = iter(whole)
            assert all(body in found for body in bodies(reader, skips_damage=True))
        file.write_bytes(before)
