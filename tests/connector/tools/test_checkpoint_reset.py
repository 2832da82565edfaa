"""`pyrocket checkpoint reset` moves a query to other offsets."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from pyrocket import Store
from pyrocket.tools.cli import main
from pyspark_pyrocket.tools.checkpoints.commands import queries_on
from pyspark_pyrocket.transport.path import forget
from support.spark_checkpoints import SETTINGS, Files, everything, reset, run, run_json


def test_a_reset_appends_a_batch_that_reads_nothing_and_changes_no_file(files):
    before = everything(files.path)
    done = reset(files, "--to", '{"t":{"0":1,"1":"earliest"}}', "--yes")
    assert done["done"]
    assert done["before"] == {"t": {"0": 2, "1": 2}}
    assert done["after"] == {"t": {"0": 1, "1": 0}}
    after = everything(files.path)
    assert set(after) - set(before) == {str(files.path / "offsets/2")}
    assert after | before == after
    written = files.offset(2)
    assert written["initial"] is True
    assert files.offset(2, line=1) == json.loads(SETTINGS)
    assert files.reader.partitions(files.position, written) == []


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("earliest", {"0": 0, "1": 0}),
        ("latest", {"0": 3, "1": 2}),
        ("LATEST", {"0": 3, "1": 2}),
        ("1970-01-02", {"0": 0, "1": 0}),
        ("-1h", {"0": 0, "1": 0}),
        ("4102444800000", {"0": 3, "1": 2}),
    ],
)
def test_a_reset_accepts_every_start_of_a_query(files, to, after):
    files.box.send("e", queue=0)
    assert reset(files, "--to", to, "--yes")["after"] == {"t": after}


def test_a_reset_can_move_a_query_to_the_committed_offsets_of_a_group(files):
    with Store.open(files.box.path) as store:
        store.groups.commit("billing", "t", {0: 1, 1: 2})
    done = reset(files, "--to", "committed", "--group", "billing", "--yes")
    assert done["after"] == {"t": {"0": 1, "1": 2}}


def test_a_dry_run_and_a_negative_answer_write_nothing(files):
    before = everything(files.path)
    assert not reset(files, "--to", "earliest", "--dry-run")["done"]
    assert not reset(files, "--to", "earliest", status=1)["done"]
    store = ("--path", files.box.path)
    asked = CliRunner().invoke(
        main, ["checkpoint", "reset", str(files.path), *store, "--to", "earliest"], input="n\n"
    )
    assert asked.exit_code == 1
    assert "t      0      2     0\n" in asked.output
    assert everything(files.path) == before


def test_an_uncommitted_plan_is_replaced_and_backed_up(files):
    files.box.send("e")
    files.plan()
    plan = (files.path / "offsets/2").read_text()
    done = reset(files, "--to", "earliest", "--yes")
    assert (done["batch"], done["replaces"]) == (2, [2])
    with open(f"{done['backup']}/offsets/2") as kept:
        assert kept.read() == plan
    assert files.offset(2)["initial"] is True
    assert not (files.path / "offsets/.2.crc").exists(), "old checksums would make it unreadable"
    assert run_json("show", files.path)["damaged"] == []


@pytest.mark.parametrize(
    ("name", "batch"),
    [("offsets/1", 1), ("commits/1", 1), ("offsets/.1.crc", 2), ("commits/.1.crc", 2)],
)
def test_a_reset_repairs_a_checkpoint_after_a_power_loss(files, name, batch):
    """The last plan or the last commit is an empty file, which Spark cannot read."""
    (files.path / name).write_bytes(b"")
    if not name.endswith(".crc"):
        (files.path / f"{os.path.dirname(name)}/.1.crc").unlink()
    run("show", files.path, status=1)
    done = reset(files, "--to", "earliest", "--yes")
    assert done["batch"] == batch
    assert os.path.getsize(f"{done['backup']}/{name}") == 0
    assert run_json("show", files.path)["damaged"] == []
    assert files.offset(batch)["initial"] is True


def test_a_second_reset_replaces_the_first(files):
    reset(files, "--to", "earliest", "--yes")
    done = reset(files, "--to", "latest", "--yes")
    assert done["batch"] == 2
    assert files.offset(2)["offsets"] == {"t": {"broker-a": {"0": 2, "1": 2}}}


def test_a_reset_keeps_the_offsets_of_other_sources(files):
    files.box.send("e")
    files.plan("-", '{"some":"other source"}')
    files.commit()
    reset(files, "--to", "earliest", "--yes")
    lines = (files.path / "offsets/3").read_text().splitlines()
    assert lines[3:] == ["-", '{"some":"other source"}']
    shown = run("show", files.path)
    assert "source 0: starting with micro-batch 3" in shown


def test_with_two_sources_one_has_to_be_selected(files):
    files.box.send("e")
    files.plan(json.dumps(files.position))
    files.commit()
    assert reset(files, "--to", "latest", "--yes", status=2)["error"]["code"] == "CHECKPOINT_SOURCE"
    reset(files, "--to", "latest", "--source", "1", "--yes")
    assert files.offset(3, line=3)["initial"] is True
    assert "initial" not in files.offset(3, line=2)


@pytest.fixture
def two(box, tmp_path):
    """One message in each of the topics t and u, which micro-batch 0 has read."""
    for topic in ("t", "u"):
        type(box)(box.path, topic).create(queues=1).send("x")
    made = Files(tmp_path / "two", type(box)(box.path, "t"), subscribe="t,u")
    made.plan()
    made.commit()
    yield made
    forget(box.path)


def test_a_reset_moves_only_the_selected_topics(two):
    moved = reset(two, "--to", "earliest", "--topic", "u", "--yes")["after"]
    assert moved == {"t": {"0": 1}, "u": {"0": 0}}
    wrong = reset(two, "--to", "earliest", "--topic", "v", "--yes", status=2)["error"]
    assert wrong["code"] == "CHECKPOINT_TOPIC"


def test_a_reset_moves_only_the_queues_that_json_names(files):
    done = reset(files, "--to", '{"t":{"0":1}}', "--yes")
    assert (done["before"], done["after"]) == ({"t": {"0": 2, "1": 2}}, {"t": {"0": 1, "1": 2}})
    end = files.reader.latestOffset(files.offset(2), None)
    (task,) = files.reader.partitions(files.offset(2), end)
    assert [(r.queue.queue_id, r.start, r.end) for r in task.work.ranges] == [(0, 1, 2)]


def test_a_reset_with_json_leaves_other_topics_where_they_are(two):
    moved = reset(two, "--to", '{"u":{"0":"earliest"}}', "--yes")["after"]
    assert moved == {"t": {"0": 1}, "u": {"0": 0}}


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ('{"t":{"9":0}}', "queue 9"),
        ('{"t":{"0":9}}', "offset 9"),
        ('{"t":{"0":"soon"}}', "soon"),
        ('{"t":', "not JSON"),
        ("yesterday", "yesterday"),
        ("committed", "--group"),
    ],
)
def test_a_wrong_place_is_reported_for_the_option_of_the_command(files, to, reason):
    before = everything(files.path)
    wrong = reset(files, "--to", to, "--yes", status=2)["error"]
    assert reason in wrong["message"] + wrong["remedy"]
    assert "starting" not in wrong["message"] + wrong["remedy"]
    assert everything(files.path) == before


def test_moving_one_queue_does_not_hide_a_loss_in_another(files):
    with Store.open(files.box.path) as store:
        store.topics.delete("t")
    files.box.create(queues=2)
    wrong = reset(files, "--to", '{"t":{"0":"earliest"}}', "--yes", status=2)["error"]
    assert wrong["code"] == "CHECKPOINT_TOPIC"
    assert "Move all queues" in wrong["remedy"]


def test_moving_one_topic_does_not_hide_a_loss_in_another(two):
    with Store.open(two.box.path) as store:
        store.topics.delete("t")
    two.box.create(queues=1)
    wrong = reset(two, "--to", "earliest", "--topic", "u", "--yes", status=2)["error"]
    assert wrong["code"] == "CHECKPOINT_TOPIC"
    assert "add --topic t" in wrong["remedy"]
    assert reset(two, "--to", "earliest", "--yes")["after"] == {"t": {"0": 1}, "u": {"0": 0}}


def test_a_query_is_moved_to_another_store(files, box, tmp_path):
    """After STORE_CHANGED, for example because the store was created again."""
    new_box = type(box)(str(tmp_path / "new")).create(queues=2)
    new_box.send("x", queue=1)
    done = run_json("reset", files.path, "--path", new_box.path, "--to", "latest", "--yes")
    assert done["after"] == {"t": {"0": 0, "1": 1}}
    with Store.open(new_box.path, read_only=True) as store:
        assert files.offset(2)["brokers"]["broker-a"]["store"] == store.uuid


def test_a_topic_that_was_created_again_is_read_after_a_reset(files):
    """A query that fails with TOPIC_RECREATED does not need a new checkpoint."""
    with Store.open(files.box.path) as store:
        store.topics.delete("t")
    files.box.create(queues=2)
    files.box.send("new", queue=0)
    reset(files, "--to", "earliest", "--yes")
    moved = files.offset(2)
    with Store.open(files.box.path, read_only=True) as store:
        assert moved["topics"] == {"t": {"broker-a": store.topics.get("t").topic_id}}
    end = files.reader.latestOffset(moved, None)
    assert [r.rows for p in files.reader.partitions(moved, end) for r in p.work.ranges] == [1]


def test_a_query_that_has_progressed_in_the_meantime_is_not_moved(files, monkeypatch):
    """It commits a micro-batch while the command waits for confirmation."""

    def agree(*_, **__):
        files.box.send("e")
        files.plan()
        return True

    monkeypatch.setattr("pyspark_pyrocket.tools.checkpoints.commands.ask", agree)
    store = ("--path", files.box.path)
    output = run("reset", files.path, *store, "--to", "earliest", status=2)
    assert "CHECKPOINT_MOVED" in output
    assert "initial" not in files.offset(2)


def test_a_query_that_is_reading_the_store_is_detected(files):
    store = files.box.path
    code = (
        f"import os, time; os.open({store!r}, os.O_RDONLY); print('up', flush=True); time.sleep(60)"
    )
    runner = "pyspark.sql.streaming.python_streaming_source_runner"
    with subprocess.Popen(
        [sys.executable, "-c", code, runner], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            process.stdout.readline()
            if sys.platform == "linux":
                error = reset(files, "--to", "earliest", "--yes", status=2)["error"]
                assert error["code"] == "QUERY_RUNNING"
                assert str(process.pid) in error["message"]
            assert reset(files, "--to", "earliest", "--yes", "--force")["done"]
        finally:
            process.kill()


def test_no_query_is_found_without_proc(tmp_path):
    assert queries_on(tmp_path, processes=tmp_path / "none") == []


def test_a_checkpoint_without_a_batch_has_nothing_to_move(tmp_path, box):
    box.create()
    made = Files(tmp_path / "fresh", box)
    assert "No micro-batch" in run("show", made.path)
    assert reset(made, "--to", "latest", "--yes", status=2)["error"]["code"] == "CHECKPOINT_EMPTY"
    forget(box.path)


def test_a_command_that_needs_the_store_names_the_option(files):
    error = run_json("reset", files.path, "--to", "latest", status=2)["error"]
    assert error["code"] == "USAGE"
    assert "--path" in error["message"]
