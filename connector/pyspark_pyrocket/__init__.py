"""RocketMQ topics as Spark DataFrames, batch and streaming, without a jar: `format("pyrocket")`.

Spark finds this package by its name. Importing it is cheap and never fails: everything else is
imported when it is first used.

The packages; each imports only from those above it in this list:

    support, worker, boundary, arrow_types    pyspark's version, worker processes, Arrow types
    options      the options of a query: text → checked values
    transport    access to the messages of an open store
    json         JSON bodies → columns, and back
    columns      the columns that a DataFrame may have
    source       batch and stream readers: offsets, planning, tasks
    sink         writers: exactly-once by staging, at-least-once by appending
    datasource   the class that Spark calls
    tools        commands and helpers: checkpoints, doctor, lag, groups, notebook, Java
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark_pyrocket.support import missing_pyspark

if TYPE_CHECKING:
    from pyspark_pyrocket.tools.foreach_batch import foreach_batch
    from pyspark_pyrocket.tools.groups import BatchCommit
    from pyspark_pyrocket.tools.interpreters import configure, register
    from pyspark_pyrocket.tools.lag.measure import TopicLag, lag_of
    from pyspark_pyrocket.tools.lag.watch import LagListener, LagWatch, watch_lag
    from pyspark_pyrocket.tools.notebook import StreamView, display_stream

try:
    from pyspark_pyrocket.datasource import DefaultSource
except ImportError as error:
    # If pyspark lacks the data source API: a class that raises an error with the required version.
    DefaultSource = missing_pyspark(error)  # type: ignore[assignment,misc]

__all__ = [
    "BatchCommit",
    "DefaultSource",
    "LagListener",
    "LagWatch",
    "StreamView",
    "TopicLag",
    "configure",
    "display_stream",
    "foreach_batch",
    "lag_of",
    "register",
    "watch_lag",
]

_MODULES = {
    "BatchCommit": "groups",
    "LagListener": "lag.watch",
    "LagWatch": "lag.watch",
    "StreamView": "notebook",
    "TopicLag": "lag.measure",
    "configure": "interpreters",
    "display_stream": "notebook",
    "foreach_batch": "foreach_batch",
    "lag_of": "lag.measure",
    "register": "interpreters",
    "watch_lag": "lag.watch",
}
"""Public name → the module of `tools` that it is imported from on first use."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use: most importing processes use none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'pyspark_pyrocket' has no attribute {name!r}")
    return getattr(import_module(f"pyspark_pyrocket.tools.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return all names, including public names that are not imported yet."""
    return sorted({*globals(), *__all__})
