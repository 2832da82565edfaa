"""A batch is published once, even if a later run repeats it."""

import pytest
from pyrocket import SinkBatch, Store
from pyrocket.disk import io
from pyrocket.disk.shared_state import FLUSHED, PUBLISHED
from pyrocket.errors import SinkError, StoreDamagedError
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.services.sink.ledger import FORGET_AFTER_MS
from support.sinks import QUERY, numbered, publish, stage_tasks, staged_files
from support.stores import SMALL, batch, bodies, reboot, snapshot, words

ROWS = [b"%03d" % number for number in range(40)]
DAY_MS = 86_400_000
FEW = 5
FILLER = batch([b"." * 900] * 20, 0)


@pytest.fixture
def few_are_many(monkeypatch):
    """The ledger is saved after more than `FEW` batches."""
    monkeypatch.setattr("pyrocket.services.sink.ledger.LONG_TAIL", FEW)


def all_bodies(store, topic="t"):
    return sorted(body for rows in bodies(store, topic).values() for body in rows)


def refused(store, number, run="run-1", rows=ROWS):
    with pytest.raises(SinkError) as caught:
        publish(store, number, rows, run)
    return caught.value.code


def test_the_same_batch_is_dropped(store):
    publish(store, 5, ROWS)
    end = store.position()
    result = publish(store, 5, ROWS)
    assert (result.rows, result.bytes, result.dropped) == (0, 0, True)
    assert store.position() == end
    assert all_bodies(store) == ROWS


def test_an_earlier_batch_is_rejected_with_a_remedy(store):
    publish(store, 5, ROWS)
    assert refused(store, 4) == "SINK_BATCH_BEHIND"
    assert refused(store, 4, rows=[]) == "SINK_BATCH_BEHIND"
    assert all_bodies(store) == ROWS


def test_repeated_batches_without_a_run_are_dropped_and_not_fenced(store):
    for number in (3, 3, 4):
        publish(store, number, [b"%d" % number], run="")
    assert all_bodies(store) == [b"3", b"4"]
    assert refused(store, 3, run="") == "SINK_BATCH_BEHIND"


def test_each_sink_of_each_query_has_its_own_batch_numbers(store):
    for identity, target in (("a", "t"), ("a", ""), ("b", "t")):
        one = SinkBatch(identity=identity, target=target, batch=0, run="r")
        assert store.sink.publish(one, stage_tasks(store, one, [b"x"])).rows == 1
    assert len(all_bodies(store)) == 3


def test_no_two_pairs_of_identity_and_target_have_the_same_key():
    keys = {
        SinkBatch(identity=identity, target=target, batch=0).key
        for identity, target in (("ab", "c"), ("a", "bc"), ("abc", ""), ("ab:c", ""))
    }
    assert len(keys) == 4


def test_repeated_batch_is_dropped_only_if_durable(path, store):
    publish(store, 0, ROWS)
    page = words(path)
    page[FLUSHED] = page[PUBLISHED] - 1
    publish(store, 0, ROWS)
    assert page[FLUSHED] == page[PUBLISHED]
    page.close()


def test_published_batches_are_recognized_after_a_crash_of_the_machine(path, store, clock):
    publish(store, 0, ROWS, "run-1")
    publish(store, 1, ROWS, "run-2")
    store.close(clean=False)
    reboot(path)
    with Store.open(path, config=SMALL, clock=clock) as again:
        assert publish(again, 1, ROWS, "run-3").dropped
        assert refused(again, 2, "run-1") == "SINK_FENCED"
        assert refused(again, 2, "run-2") == "SINK_FENCED"
        assert all_bodies(again) == sorted(ROWS * 2)


def test_ledger_is_rebuilt_from_the_log(path, store, clock):
    for number in range(5):
        publish(store, number, ROWS, f"run-{number // 2}")
    store.close()
    (path / "pyrocket" / "sink.json").unlink()
    with Store.open(path, config=SMALL, clock=clock) as again:
        assert again.sink.last(QUERY, "t") == 4
        assert publish(again, 4, ROWS, "run-2").dropped
        assert refused(again, 5, "run-1") == "SINK_FENCED"


def test_ledger_file_is_durable_before_log_files_are_deleted(path, store, monkeypatch):
    publish(store, 3, ROWS)
    store.append_batch(FILLER, topic="t")
    known = []
    real = io.unlink
    ledger = path / "pyrocket" / "sink.json"

    def unlink(file):
        if file.parent.name == "commitlog":
            known.append(ledger.exists() and '"next": 1' in ledger.read_text())
        real(file)

    monkeypatch.setattr(io, "unlink", unlink)
    store.clean(total_bytes=2 * SMALL.log_file_bytes)
    assert known
    assert all(known)


def test_a_query_is_forgotten_after_more_than_a_year(path, store, clock):
    publish(store, 3, ROWS)
    clock.now += FORGET_AFTER_MS + 1
    other = numbered(0, identity="other")
    store.sink.publish(other, stage_tasks(store, other, ROWS))
    for _ in range(10):
        store.append_batch(FILLER, topic="t")
    store.clean(total_bytes=2 * SMALL.log_file_bytes)
    assert store.sink.last(QUERY, "t") is None
    assert store.sink.last("other", "t") == 0


def test_a_batch_that_is_never_repeated_later_is_forgotten_after_a_day(
    path, store, clock, few_are_many
):
    """Over an endpoint, each batch write without txnAppId is such a batch."""
    for _ in range(3):
        once = SinkBatch.once("t")
        staged = stage_tasks(store, once, ROWS[:1])
        assert not store.sink.publish(once, staged).dropped
        assert store.sink.publish(once, staged).dropped
    clock.now += DAY_MS + 1
    for number in range(FEW):
        publish(store, number, ROWS[:1])
    content = (path / "pyrocket" / "sink.json").read_text()
    assert content.count("identity") == 1
    assert store.sink.last(QUERY, "t") == FEW - 1


def test_a_ledger_read_before_records_were_deleted_still_includes_them(path, store, reader):
    publish(store, 0, ROWS)
    assert reader.sink.last(QUERY, "t") == 0
    other = numbered(0, identity="other")
    store.sink.publish(other, stage_tasks(store, other, ROWS))
    publish(store, 1, ROWS)
    for _ in range(10):
        store.append_batch(FILLER, topic="t")
    store.clean(total_bytes=2 * SMALL.log_file_bytes)
    assert reader.sink.last("other", "t") == 0
    assert reader.sink.last(QUERY, "t") == 1


def test_ledger_file_is_saved_after_many_batches(path, store, few_are_many):
    ledger = path / "pyrocket" / "sink.json"
    for number in range(FEW):
        publish(store, number, [b"x"], tasks=1)
    assert not ledger.exists()
    publish(store, FEW, [b"x"], tasks=1)
    assert ledger.exists()
    saved = ledger.read_bytes()
    publish(store, FEW + 1, [b"x"], tasks=1)
    assert ledger.read_bytes() == saved
    assert store.sink.last(QUERY, "t") == FEW + 1


@pytest.mark.parametrize("how", ["ahead", "of another log"])
def test_a_ledger_file_newer_than_the_log_is_ignored(path, store, clock, caplog, how):
    """This happens if an older log is restored beside a newer ledger file."""
    publish(store, 0, ROWS)
    publish(store, 1, ROWS)
    store.close()
    ledger = path / "pyrocket" / "sink.json"
    content = decode_own(ledger, ledger.read_bytes())
    content |= {"next": 9} if how == "ahead" else {"last": 4097}
    (known,) = content["queries"].values()
    known["batch"] = 9
    ledger.write_bytes(encode_own(ledger, content))
    with Store.open(path, config=SMALL, clock=clock) as again:
        assert again.sink.last(QUERY, "t") == 1
        assert "does not match the log" in caplog.text
        assert publish(again, 2, ROWS).rows == 40


def test_an_error_names_a_corrupt_ledger_file(path, store, clock):
    publish(store, 0, ROWS)
    store.close()
    (path / "pyrocket" / "sink.json").write_text('{"queries": [')
    with Store.open(path, config=SMALL, clock=clock) as again:
        with pytest.raises(StoreDamagedError, match=r"sink\.json cannot be parsed"):
            publish(again, 0, ROWS)
        assert all_bodies(again) == ROWS
        (path / "pyrocket" / "sink.json").unlink()
        assert publish(again, 0, ROWS).dropped


def test_reading_the_last_batch_writes_nothing(path, store, reader):
    publish(store, 0, ROWS)
    before = snapshot(path)
    assert reader.sink.last(QUERY, "t") == 0
    assert reader.sink.last("nobody", "t") is None
    assert snapshot(path) == before


def test_a_copy_of_a_store_recognizes_published_batches(path, store, tmp_path):
    """This includes batches whose messages were deleted; staged rows are not copied."""
    publish(store, 3, ROWS)
    for _ in range(10):
        store.append_batch(FILLER, topic="t")
    store.clean(total_bytes=2 * SMALL.log_file_bytes)
    stage_tasks(store, numbered(4), ROWS)
    store.snapshot(tmp_path / "copy")
    with Store.open(tmp_path / "copy", config=SMALL) as copy:
        assert publish(copy, 3, ROWS).dropped
        assert staged_files(tmp_path / "copy") == []
