"""A Spark cluster of two workers on this machine."""

import os
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

BIN = Path(pyspark.__file__).parent / "bin"


@contextmanager
def two_workers(folder, **environment):
    """Start a cluster, and yield the master's URL. Each worker has one core and its own address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        log = stack.enter_context((folder / "cluster.log").open("wb"))
        master = ["master.Master", "127.0.0.1", "--port", str(port)]
        stack.enter_context(_daemon(log, environment, *master))
        for number in (1, 2):
            size = ["--cores", "1", "--memory", "600m"]
            where = ["--work-dir", str(folder / f"work{number}"), url]
            worker = ["worker.Worker", f"127.0.0.{number}", *size, *where]
            stack.enter_context(_daemon(log, environment, *worker))
        yield url


@contextmanager
def _daemon(log, environment, name, host, *arguments):
    begin = [BIN / "spark-class", f"org.apache.spark.deploy.{name}", "--host", host]
    process = subprocess.Popen(
        [*begin, "--webui-port", "0", *arguments],
        stdout=log,
        stderr=log,
        env={**(environment or os.environ), "SPARK_LOCAL_IP": host},
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)
