"""If an export is killed together with Spark, the next run continues it."""

import subprocess
import sys
from pathlib import Path

import export_parquet
import pytest
from pyarrow import parquet
from pyrocket import Store
from support.stores import batch

pytestmark = [pytest.mark.spark, pytest.mark.crash]

KILLED_JOB = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import export_parquet, export_steps
from pyspark_pyrocket import configure
configure()
point, export = sys.argv[2], export_steps.Export
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if point == "complete":
    export.complete = die
if point == "finish":
    finish = export.finish
    def finish_but_for_the_group(self, plan):
        type(self._store.groups).commit = die
        finish(self, plan)
    export.finish = finish_but_for_the_group
sys.exit(export_parquet.main(sys.argv[3:]))
"""


@pytest.mark.heavy
@pytest.mark.parametrize("point", ["complete", "finish"])
def test_the_next_run_continues_a_killed_export(store, tmp_path, point, checkout_in_children):
    """The export is killed by SIGKILL after Spark has written its rows, or between the moves and
    the commit.
    """
    store.append_batch(batch([b"x"] * 100, [0, 1] * 50), topic="t")
    examples = str(Path(export_parquet.__file__).parent)
    arguments = ["--path", str(store.path), "--topic", "t", "--output", str(tmp_path / "out")]
    for where, code in ((point, -9), ("none", 0)):
        command = [sys.executable, "-c", KILLED_JOB, examples, where, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr[-3000:]
    assert exported(tmp_path / "out") == [(queue, n) for queue in (0, 1) for n in range(50)]
    assert store.groups.committed("export-parquet", "t") == {0: 50, 1: 50}


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store", create=True) as one:
        one.topics.create("t", read_queues=2, write_queues=2)
        yield one


def exported(output):
    rows = parquet.read_table(output, columns=["queueId", "queueOffset"]).to_pylist()
    return sorted((row["queueId"], row["queueOffset"]) for row in rows)
