"""Deploying jobs: spark-submit with a zip on a cluster, and SQL.

For Spark Connect see test_connect.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from pyrocket import Store
from pyspark_pyrocket.tools.java import find_java
from pyspark_pyrocket.tools.python_link import python_for_spark
from support.clusters import BIN, two_workers
from support.machines import ROOT, bare_environment

JOB = Path(__file__).with_name("deployed_job.py")
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def bare(**changes):
    """Return an environment in which Python has pyspark, and pyrocket only if the job ships it."""
    known = {"PYSPARK_PYTHON": python_for_spark(sys.executable), "JAVA_HOME": find_java().home}
    return bare_environment(**known, SPARK_LOCAL_IP="127.0.0.1", **changes)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Both packages in a zip, created as in the README."""
    target = tmp_path_factory.mktemp("zip") / "pyrocket.zip"
    packages = ["store/pyrocket", "connector/pyspark_pyrocket"]
    subprocess.run(
        [sys.executable, "-m", "zipfile", "-c", str(target), *packages], cwd=ROOT, check=True
    )
    return target


def submit(master, folder, environment, *options):
    settings = [text for pair in SETTINGS.items() for text in ("--conf", "=".join(pair))]
    command = [BIN / "spark-submit", "--master", master, *settings, *options, JOB]
    done = subprocess.run(
        [*command, folder / "store", folder / "checkpoint"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    return done.stdout


def rows_of(path, topic):
    with Store.open(path, read_only=True) as store:
        return sum(has.maximum - has.minimum for has in store.offsets(topic).values())


@pytest.mark.heavy
@pytest.mark.spark
def test_spark_submit_runs_a_job_with_py_files_on_two_workers(archive, tmp_path):
    """The zip is shipped to both workers; processes that the driver starts find it, too."""
    with two_workers(tmp_path, **bare()) as master:
        environment = bare(PYTHONPATH=archive)
        printed = submit(master, tmp_path, environment, "--py-files", str(archive))
    assert "copied 2000 rows with 2 executors" in printed
    assert rows_of(tmp_path / "store", "first") == rows_of(tmp_path / "store", "second") == 2_000


def test_rows_can_be_inserted_into_a_temporary_view(spark, box):
    """A view keeps its options, for reads and writes."""
    box.create(queues=1)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW inbox USING pyrocket"
        f" OPTIONS (path '{box.path}', topic 't', valueFormat 'string')"
    )
    sink = (
        f"CREATE OR REPLACE TEMPORARY VIEW outbox (body STRING, key STRING) USING pyrocket"
        f" OPTIONS (path '{box.path}', topic 't')"
    )
    spark.sql(sink)
    spark.sql("INSERT INTO outbox VALUES ('hello', 'k')")
    assert box.bodies() == [b"hello"]
    rows = spark.sql("SELECT body, keys FROM inbox WHERE array_contains(keys, 'k')").collect()
    assert [tuple(row) for row in rows] == [("hello", ["k"])]


def test_select_with_options_works_without_a_table(spark, box):
    """In contrast to CREATE TABLE, this works."""
    box.create(queues=1).send("a", queue=0)
    spark.sql(f"CREATE TABLE named USING pyrocket OPTIONS (path '{box.path}', topic 't')")
    try:
        with_options = f"named WITH (path = '{box.path}', topic = 't')"
        assert spark.sql(f"SELECT count(*) FROM {with_options}").first()[0] == 1
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM named").collect()
    finally:
        spark.sql("DROP TABLE named")
