"""Spark's `format("pyrocket")`: RocketMQ topics as tables, batch and streaming, without a jar.

Spark finds this package by its name, imports it in every Python process it starts, and gives up
on *all* Python sources if one import fails. So nothing here may raise or be heavy: the source
itself imports its parts when they are needed.

The layers, bottom-up; each imports only from those before it:

    support                           what this needs of pyspark
    options                           what the user asked for (pure)
    arrays, columns, projection       what a DataFrame gets (pure)
    checkpoint, ranges, rate_limit    what Spark's checkpoint and tasks carry (pure)
    stores                            opened stores, one per process and directory
    planner, stream_planner           options + store → ranges, on the driver
    task                              ranges → Arrow batches, on executors
    source_runner                     the process in which a streaming reader lives
    reader, stream_reader             the two kinds of query
    stream_start                      everything checked before Spark asks for an offset
    sink_columns, send_batch          a DataFrame's columns → those of messages (pure)
    sink                              what is settled on the driver
    task_rows, identity               the rows of a task; what a repeated write is known by
    write_direct, write_staged        tasks append; tasks stage and the driver publishes
    writer                            which of the two
    datasource                        the façade that Spark talks to
    java, doctor                      finding a Java; the command `pyrocket doctor`
"""

from pyspark_pyrocket.support import missing_pyspark

try:
    from pyspark_pyrocket.datasource import RocketDataSource as DefaultSource
except ImportError as error:
    # A stand-in that says which pyspark is needed: not a DataSource, because there is none.
    DefaultSource = missing_pyspark(error)  # type: ignore[assignment,misc]

__all__ = ["DefaultSource"]
