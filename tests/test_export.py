"""The export to Parquet exports each message once, even after a crash, and only one run at a
time.
"""

import json
import os
import shutil
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path

import export_parquet
import export_steps
import pyarrow as pa
import pytest
from export_steps import Export, UnfitOutputError, try_lock
from pyarrow import parquet
from pyrocket import Store
from support.stores import FakeClock, batch

DAY_MS = 86_400_000


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    with Store.open(tmp_path / "store", create=True, clock=clock) as one:
        one.topics.create("t", read_queues=2, write_queues=2)
        yield one


@pytest.fixture
def output(tmp_path):
    (tmp_path / "out" / "_export").mkdir(parents=True)
    return tmp_path / "out"


def write_rows(export, plan, store):
    """Write the rows as Spark does: a file for each queue, on one of two days."""
    place = Path(export.prepare_rows(plan).removeprefix("file://"))
    for queue_id, (start, end) in plan.ranges.items():
        if start == end:
            continue
        columns = ("queueId", "queueOffset", "body")
        rows = pa.Table.from_batches(store.scan("t", queue_id, start, end, columns))
        (place / f"date=2026-01-0{queue_id + 1}").mkdir(parents=True)
        name = f"part-{queue_id}-{plan.rows}.parquet"
        parquet.write_table(rows, place / f"date=2026-01-0{queue_id + 1}" / name)


def run(store, output):
    """Run the export once, as the job does."""
    export = Export(store, "t", "g", str(output))
    begun = export.unfinished()
    if begun is not None:
        export.finish(begun)
    plan = export.plan()
    if plan.count:
        write_rows(export, plan, store)
        export.complete(plan)
        export.finish(plan)


def exported(output):
    rows = parquet.read_table(output, columns=["queueId", "queueOffset"]).to_pylist()
    return sorted((row["queueId"], row["queueOffset"]) for row in rows)


class Killed(BaseException):
    """Simulates the death of the process: no code handles this exception."""


def die_at(monkeypatch, step):
    """Simulate the death of the process before the disk change with this number, counted from 0."""
    left = [step]

    def dying(real):
        def change(*arguments, **options):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(*arguments, **options)

        return change

    for owner, name in [
        (export_steps, "_sync"),
        (Path, "mkdir"),
        (Path, "rename"),
        (Path, "replace"),
        (Path, "write_text"),
        (Path, "unlink"),
        (shutil, "rmtree"),
        (parquet, "write_table"),
    ]:
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))
    return left


def test_a_run_that_dies_at_any_step_loses_and_repeats_nothing(store, output, monkeypatch):
    store.append_batch(batch([b"x"] * 6, [0, 1] * 3), topic="t")
    step, sent, died = 0, 3, True
    while died:
        with monkeypatch.context() as patch:
            die_at(patch, step)
            try:
                run(store, output)
                died = False
            except Killed:
                pass
        # The next run completes, and new messages have arrived.
        store.append_batch(batch([b"y"] * 2, [0, 1]), topic="t")
        sent += 1
        run(store, output)
        assert exported(output) == [(queue, n) for queue in (0, 1) for n in range(sent)]
        assert store.groups.committed("g", "t") == {0: sent, 1: sent}
        store.append_batch(batch([b"z"] * 2, [0, 1]), topic="t")
        sent += 1
        step += 1
    assert step > 20
    assert os.listdir(output / "_export") == []


def test_a_second_run_at_the_same_time_exports_nothing(output):
    with try_lock(str(output)) as first:
        assert first
        with try_lock(str(output)) as second:
            assert not second
    with try_lock(str(output)) as third:
        assert third


def test_a_second_run_prints_a_message_and_exits(store, output, capsys):
    arguments = ["--path", str(store.path), "--topic", "t", "--output", str(output)]
    with try_lock(str(output)):
        assert export_parquet.main(arguments) == 0
    assert "Another run exports to" in capsys.readouterr().out


def test_a_dry_run_prints_what_would_be_exported_and_changes_nothing(store, tmp_path, capsys):
    store.append_batch(batch([b"x"] * 5, 1), topic="t")
    store.groups.commit("export-parquet", "t", {1: 2})
    arguments = ["--path", str(store.path), "--topic", "t", "--output", str(tmp_path / "none")]
    assert export_parquet.main([*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "queue 0: 0 messages, 0 to 0",
        "queue 1: 3 messages, 2 to 5",
        f"3 messages of t would go to {tmp_path / 'none'}",
    ]
    assert not (tmp_path / "none").exists()


def test_an_output_in_use_for_another_export_is_rejected(store, output, capsys):
    store.append_batch(batch([b"x"], 0), topic="t")
    export = Export(store, "t", "g", str(output))
    plan = export.plan()
    write_rows(export, plan, store)
    export.complete(plan)
    with pytest.raises(UnfitOutputError, match="in use for an export of t for the group g"):
        Export(store, "t", "other", str(output)).unfinished()
    arguments = ["--path", str(store.path), "--topic", "t", "--output", str(output)]
    assert export_parquet.main(arguments) == 2
    assert "in use" in capsys.readouterr().out


def test_a_missing_topic_is_reported(store, output, capsys):
    arguments = ["--path", str(store.path), "--topic", "ttt", "--output", str(output)]
    assert export_parquet.main(arguments) == 2
    assert "TOPIC_NOT_FOUND" in capsys.readouterr().out


def test_expired_messages_are_skipped(store, output):
    """The group's offset is before the first message, or after the end of a truncated queue."""
    store.append_batch(batch([b"x"] * 3, 0), topic="t")
    export = Export(store, "t", "g", str(output))
    store.groups.commit("g", "t", {0: 3})
    assert export.plan().ranges == {0: (3, 3), 1: (0, 0)}


def complete_and_die(store, output, **changes):
    """Complete the rows of a run, but do not move the files; `changes` modify the plan."""
    export = Export(store, "t", "g", str(output))
    plan = export.plan()
    write_rows(export, plan, store)
    export.complete(replace(plan, **changes))


def test_a_deleted_queue_does_not_block_the_export(store, output):
    store.append_batch(batch([b"x"] * 4, [0, 1] * 2), topic="t")
    complete_and_die(store, output)
    store.topics.update("t", read_queues=1, write_queues=1)
    store.append_batch(batch([b"y"], 0), topic="t")
    run(store, output)
    assert exported(output) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert store.groups.committed("g", "t") == {0: 3}
    assert os.listdir(output / "_export") == []


def test_a_truncated_queue_does_not_block_the_export(store, output):
    """Messages that are stored later at the lost offsets are exported."""
    store.append_batch(batch([b"x"] * 2, 0), topic="t")
    complete_and_die(store, output, ranges={0: (0, 4), 1: (0, 0)})
    store.append_batch(batch([b"y"], 0), topic="t")
    run(store, output)
    assert store.groups.committed("g", "t") == {0: 3, 1: 0}
    assert os.listdir(output / "_export") == []


def test_the_export_is_partitioned_by_the_day_of_a_body_field(
    spark, store, clock, tmp_path, capsys
):
    """Two runs of the job: dates from the body, null if missing, and no message twice."""
    bodies = [b'{"day":"2026-01-01"}', b'{"day":"2026-01-02T10:00:00"}', b'{"day":"?"}', b"?"]
    store.append_batch(batch(bodies, 0), topic="t")
    places = ["--path", str(store.path), "--topic", "t", "--output", str(tmp_path / "my out")]
    asked = [*places, "--date", "$.day", "--columns", "queueOffset BIGINT"]
    assert export_parquet.main(asked) == 0
    assert "4 new messages of t" in capsys.readouterr().out
    store.append_batch(batch([b'{"day":"2026-01-02"}'], 0), topic="t")
    assert export_parquet.main(asked) == 0
    assert "1 new messages of t" in capsys.readouterr().out
    assert export_parquet.main(asked) == 0
    assert "0 new messages of t" in capsys.readouterr().out
    found = spark.read.parquet(str(tmp_path / "my out")).orderBy("queueOffset").collect()
    first, second = date(2026, 1, 1), date(2026, 1, 2)
    assert [tuple(row) for row in found] == [
        *((0, first), (1, second), (2, None), (3, None), (4, second))
    ]


def test_the_export_is_partitioned_by_the_day_of_the_store_time(spark, store, clock, tmp_path):
    """The types of its columns contain commas."""
    properties = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
    store.append_batch(batch([b"x"], 0, properties=properties), topic="t")
    clock.now += DAY_MS
    store.append_batch(batch([b"y"], 0), topic="t")
    arguments = ["--path", str(store.path), "--topic", "t", "--output", str(tmp_path / "out")]
    columns = "queueOffset BIGINT NOT NULL, properties MAP<STRING, STRING>"
    assert export_parquet.main([*arguments, "--columns", columns]) == 0
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("queueOffset")
    assert found.columns == ["queueOffset", "properties", "date"]
    assert found.first().properties == {"a": "b"}
    days = {path.name for path in (tmp_path / "out").glob("date=*")}
    first = datetime.fromtimestamp((clock.now - DAY_MS) / 1000, timezone.utc).date()
    second = datetime.fromtimestamp(clock.now / 1000, timezone.utc).date()
    assert days == {f"date={first}", f"date={second}"}


def test_a_plan_is_unchanged_after_a_round_trip_through_json(store, output):
    store.append_batch(batch([b"x"] * 3, 0), topic="t")
    export = Export(store, "t", "g", str(output))
    plan = export.plan()
    (output / "_export" / plan.rows).mkdir()
    export.complete(plan)
    assert export.unfinished() == plan
    assert json.loads(plan.ends) == {"t": {"0": 3, "1": 0}}
