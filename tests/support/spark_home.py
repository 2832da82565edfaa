"""A SPARK_HOME for the tests, in which Spark needs half the CPU time to start.

It is made once for each version of Spark and Java, in `build/` of the checkout.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark_pyrocket.tools.java import find_java
from pyspark_pyrocket.tools.python_link import python_for_spark

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""In a session of a few minutes, the JVM would spend half the time on optimising machine code."""

ROOT = Path(__file__).resolve().parents[2]


def prepare():
    """Return the SPARK_HOME and the options of the JVM; the first call takes a minute."""
    found = (find_java().home, importlib.metadata.version("pyspark"), sys.prefix)
    key = hashlib.sha256(repr(found).encode()).hexdigest()[:12]
    home = ROOT / "build" / f"spark-home-{key}"
    archive = home / "classes.jsa"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _link(home)
        can_be_an_option = " " not in str(archive)  # Options are separated by spaces.
        if can_be_an_option and not archive.exists():
            _train(home, archive)
    if not can_be_an_option or not archive.exists():
        return home, QUICK_JAVA
    # The JVM ignores an archive of other jars, but it would print a warning.
    return home, f"{QUICK_JAVA} -XX:SharedArchiveFile={archive} -Xlog:disable"


def _link(home):
    """Link to the installed Spark, except for `python/lib/pyspark.zip`.

    Spark puts that archive first on the path of each Python process that it starts. The archive
    contains no compiled files, so every process would compile pyspark, which takes 0.8 s of CPU
    time instead of 0.25 s from site-packages.
    """
    installed = Path(importlib.util.find_spec("pyspark").origin).parent
    (home / "python" / "lib").mkdir(parents=True, exist_ok=True)
    zips = (installed / "python" / "lib").glob("py4j-*.zip")
    links = {home / path.name: path for path in installed.iterdir() if path.name != "python"}
    links |= {home / "python" / "lib" / path.name: path for path in zips}
    for link, path in links.items():
        if not link.is_symlink():
            link.symlink_to(path)


def _train(home, archive):
    """Run a session that loads the classes of most tests; the JVM saves them when it ends."""
    fresh = archive.with_suffix(".new")
    options = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
    paths = [str(ROOT / name) for name in ("store", "connector", "tests")]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_SUBMIT_OPTS": options,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python_for_spark(sys.executable),
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "support.spark_home", folder]
        subprocess.run(command, env=environment, cwd=folder, capture_output=True, check=False)
    if fresh.exists():
        shutil.move(fresh, archive)


def new_session(folder):
    """Start a session with two cores and local files in this folder."""
    from pyspark.sql import SparkSession
    from pyspark_pyrocket import configure

    configure()
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder / "local",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
        # These two settings reduce the fixed cost of a micro-batch to a third.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
    }
    builder = SparkSession.builder.master("local[2]").appName("pyrocket tests")
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _use(spark, folder):
    """Write and read a topic in a batch and in streams."""
    options = {"path": str(folder / "store"), "topic": "t"}
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "body STRING, number INT")
    rows.select("body").write.format("pyrocket").mode("append").options(**options).save()
    batch = spark.read.format("pyrocket").options(**options).load()
    batch.where("queueId >= 0").groupBy("tags").count().collect()
    source = spark.readStream.format("pyrocket").options(**options, startingOffsets="earliest")
    frame = source.schema("queueId INT, body STRING").load()
    counted = frame.groupBy("body").count().writeStream.outputMode("complete")
    writers = [
        frame.writeStream.format("parquet").option("path", str(folder / "out")),
        frame.writeStream.foreachBatch(lambda part, _: part.collect()),
        counted.format("memory").queryName("counted"),
        frame.writeStream.format("pyrocket").options(**{**options, "topic": "copy"}),
    ]
    for number, writer in enumerate(writers):
        place = str(folder / f"checkpoint-{number}")
        query = writer.trigger(availableNow=True).option("checkpointLocation", place).start()
        query.awaitTermination(120)
    spark.read.parquet(str(folder / "out")).collect()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    session = new_session(folder)
    jvm = session.sparkContext._gateway.proc
    try:
        _use(session, folder)
    finally:
        session.stop()
        jvm.stdin.close()
        jvm.wait(300)
