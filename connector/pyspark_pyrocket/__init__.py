"""Spark's `format("pyrocket")`: RocketMQ topics as tables, batch and streaming, without a jar.

Spark finds this package by its name, imports it in every Python process it starts, and gives up
on *all* Python sources if one import fails. So nothing here may raise or be heavy: the source
itself imports its parts when they are needed.

The layers, bottom-up; each imports only from those before it:

    options, target, offsets          what the user asked for (pure)
    columns, projection, headers      what a DataFrame gets (pure)
    checkpoint, rate_limit, ranges    what Spark's checkpoint and tasks carry (pure)
    stores                            opened stores, one per process and directory
    planner                           options + store → ranges, on the driver
    task                              ranges → Arrow batches, on executors
    reader, stream_reader             the two kinds of query
    sink_columns, writer              a DataFrame → messages
    datasource                        the façade that Spark talks to
"""

from pyspark_pyrocket.support import missing_pyspark

try:
    from pyspark_pyrocket.datasource import RocketDataSource as DefaultSource
except ImportError as error:
    DefaultSource = missing_pyspark(error)  # type: ignore[assignment,misc]

__all__ = ["DefaultSource"]
