"""Spark's `format("pyrocket")`: RocketMQ topics as tables, batch and streaming, without a jar.

Spark finds this package by its name, imports it in every Python process it starts, and gives up
on *all* Python sources if one import fails. So nothing here may raise or be heavy: the source
itself imports its parts when they are needed.

The layers, bottom-up; each imports only from those before it:

    support      what this needs of pyspark
    processes    the processes in which Spark runs it, and what they lack
    boundary     errors as they leave for Spark
    java         finding a Java
    interpreters  the Python and the Java that Spark starts: `configure`
    options      what the user asked for (pure)
    arrays       Arrow arrays seen as other types (pure)
    payload      bodies as columns, and columns as bodies (pure)
    frame        what a DataFrame gets (pure)
    stores       opened stores, one per process and directory
    planning     what is read, from where to where, and in which tasks
    reading      batches, streams and views; tasks that read
    writing      sinks; tasks that append or stage
    datasource   the façade that Spark talks to
    groups       batch reads that move a group when they are done
    lag          how far queries are behind, for people and Prometheus
    checkpoints  the command `pyrocket checkpoint`
    doctor       the command `pyrocket doctor`
    notebook     a live view of a streaming DataFrame
"""

from typing import TYPE_CHECKING, Any

from pyspark_pyrocket.support import missing_pyspark

if TYPE_CHECKING:
    from pyspark_pyrocket.tools.interpreters import configure

try:
    from pyspark_pyrocket.datasource import RocketDataSource as DefaultSource
except ImportError as error:
    # A stand-in that says which pyspark is needed: not a DataSource, because there is none.
    DefaultSource = missing_pyspark(error)  # type: ignore[assignment,misc]

__all__ = ["DefaultSource", "configure"]


def __getattr__(name: str) -> Any:
    """Import `configure` when it is first used: Spark imports this in every process."""
    if name != "configure":
        raise AttributeError(f"module 'pyspark_pyrocket' has no attribute {name!r}")
    from pyspark_pyrocket.tools.interpreters import configure

    return configure


def __dir__() -> list[str]:
    """Return the public names too, imported or not."""
    return sorted({*globals(), *__all__})
