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

from pyrocket.base import lazy_names

from pyspark_pyrocket.support import missing_pyspark

try:
    from pyspark_pyrocket.datasource import DefaultSource
except ImportError as error:
    # If pyspark lacks the data source API: a class that raises an error with the required version.
    DefaultSource = missing_pyspark(error)  # type: ignore[assignment,misc]

__getattr__, __dir__, __all__ = lazy_names(__name__)
