"""Of two runs of a query, only the later run can publish; the earlier run gets an error."""

import json
from dataclasses import replace

import pytest
from pyrocket import Store
from pyrocket.disk.machine import BootTime
from pyrocket.errors import SinkError
from pyrocket.formats import publish_record
from pyrocket.formats.checked_json import decode_own
from support.inner import inner
from support.sinks import numbered, publish, stage_tasks
from support.stores import SMALL

ROWS = [b"%03d" % number for number in range(40)]


def refused(store, number, run="run-1", rows=ROWS):
    with pytest.raises(SinkError) as caught:
        publish(store, number, rows, run)
    return caught.value.code


def test_a_later_run_fences_the_earlier_run(store):
    publish(store, 0, ROWS, "run-1")
    publish(store, 1, ROWS, "run-2")
    assert refused(store, 2, "run-1") == "SINK_FENCED"
    assert refused(store, 1, "run-1") == "SINK_FENCED"
    assert refused(store, 0, "run-1") == "SINK_FENCED"
    assert refused(store, 2, "run-1", []) == "SINK_FENCED"
    publish(store, 2, ROWS, "run-2")


def test_a_later_run_that_has_only_repeated_a_batch_also_fences_the_earlier_run(store):
    publish(store, 0, ROWS, "run-1")
    assert publish(store, 0, ROWS, "run-2").dropped
    assert refused(store, 1, "run-1") == "SINK_FENCED"
    assert publish(store, 0, ROWS, "run-2").dropped
    assert publish(store, 1, ROWS, "run-2").rows == 40


@pytest.mark.parametrize("published", [1, 3])
@pytest.mark.parametrize("rows", [ROWS, []])
def test_slow_run_is_fenced_before_its_first_publication(store, reader, published, rows):
    """The newer run has published only this batch, or also later batches, and continues."""
    held = numbered(0, "run-1")
    staged = stage_tasks(reader, held, rows)
    for number in range(published):
        publish(store, number, ROWS, "run-2")
    end = store.position()
    if rows or published > 1:
        with pytest.raises(SinkError, match="runs twice: run run-2 has taken over from run run-1"):
            store.sink.publish(held, staged)
    assert store.position() == end
    assert publish(store, published, ROWS, "run-2").rows == 40


def test_slow_run_is_fenced_after_a_replay(store):
    """A later run repeats the published batch; the slow run began before the repetition."""
    publish(store, 0, ROWS, "run-1")
    held = numbered(0, "run-2")
    staged = stage_tasks(store, held, ROWS)
    assert publish(store, 0, ROWS, "run-3").dropped
    with pytest.raises(SinkError, match="SINK_FENCED"):
        store.sink.publish(held, staged)
    assert publish(store, 1, ROWS, "run-3").rows == 40


def test_late_publication_of_a_crashed_run_is_harmless(store):
    """The crashed run publishes after the next run has staged the batch; the next run drops it."""
    dying = numbered(0, "run-1")
    staged = stage_tasks(store, dying, ROWS)
    again = numbered(0, "run-2")
    staged_again = stage_tasks(store, again, ROWS)
    store.sink.publish(dying, staged)
    assert store.sink.publish(again, staged_again).dropped
    assert publish(store, 1, ROWS, "run-2").rows == 40
    assert refused(store, 2, "run-1") == "SINK_FENCED"


def test_a_repeating_run_does_not_fence_a_run_that_publishes_before_it(
    path, store, clock, monkeypatch
):
    """The other run publishes the next batch before this run acquires the write lock."""
    publish(store, 0, ROWS, "run-1")
    with Store.open(path, config=SMALL, clock=clock) as slow:
        section, overtaking = inner(slow).writer.exclusive, ["run-1"]

        def overtaken():
            while overtaking:
                publish(store, 1, ROWS, overtaking.pop())
            return section()

        again = numbered(0, "run-2")
        staged = stage_tasks(slow, again, ROWS)
        monkeypatch.setattr(inner(slow).writer, "exclusive", overtaken)
        with pytest.raises(SinkError, match=r"SINK_BATCH_BEHIND|SINK_FENCED"):
            slow.sink.publish(again, staged)
    assert store.sink.last(again.identity, "t") == 1
    assert publish(store, 1, ROWS, "run-1").dropped


def test_the_errors_for_an_old_checkpoint_and_a_slow_run_differ(store):
    publish(store, 5, ROWS, "run-1")
    assert refused(store, 4, "run-2") == "SINK_BATCH_BEHIND"


@pytest.mark.parametrize("saved", [False, True])
def test_a_run_after_a_reboot_is_newer_than_every_earlier_run(path, store, clock, saved):
    """The time since boot restarts at 0, however long the machine was running before."""
    publish(store, 0, ROWS, "run-1")
    store.close()
    if not saved:
        (path / "pyrocket" / "sink.json").unlink()
    early = BootTime("another boot", 1)
    again = replace(numbered(0, "run-2"), began=early)
    with Store.open(path, config=SMALL, clock=clock) as store:
        assert store.sink.publish(again, stage_tasks(store, again, ROWS)).dropped


@pytest.mark.parametrize("saved", [False, True])
def test_batches_are_recognized_from_records_without_a_start_time(
    path, store, clock, monkeypatch, saved
):
    with monkeypatch.context() as patch:
        fields = [name for name in publish_record._IN_BODY if name not in ("boot", "began")]
        patch.setattr(publish_record, "_IN_BODY", fields)
        held = numbered(0, "run-2")
        publish(store, 0, ROWS, "run-1")
        store.close()
    ledger = path / "pyrocket" / "sink.json"
    content = decode_own(ledger, ledger.read_bytes())
    for entry in content["queries"].values():
        assert (entry.pop("boot"), entry.pop("began")) == ("", 0)
    ledger.write_text(json.dumps(content))
    if not saved:
        ledger.unlink()
    with Store.open(path, config=SMALL, clock=clock) as store:
        assert store.sink.publish(held, stage_tasks(store, held, ROWS)).dropped
        assert refused(store, 1, "run-1") == "SINK_FENCED"


def test_old_runs_stay_fenced(store):
    for run in range(20):
        publish(store, run, [b"x"], f"run-{run}")
    for run in range(19):
        assert refused(store, 50, f"run-{run}") == "SINK_FENCED"
