"""Spark's `format("pyrocket")`: RocketMQ topics as tables, batch and streaming, without a jar.

Spark finds this package by its name, imports it in every Python process it starts, and gives up
on *all* Python sources if one import fails. So nothing here may raise or be heavy: the source
itself imports its parts when they are needed.

The layers, bottom-up; each imports only from those before it:

    support                           what this needs of pyspark
    options                           what the user asked for (pure)
    arrays, columns                   what a DataFrame gets (pure)
    payload                           bodies as columns, and columns as bodies (pure)
    value_checks, value_columns       which columns bodies are decoded into (pure)
    projection                        a DataFrame's schema as a projection of a scan (pure)
    checkpoint, ranges                what Spark's checkpoint and tasks carry (pure)
    sizes, cutting, rate_limit        how much is in a task, and in a micro-batch
    source_runner                     the process in which a streaming reader lives
    losses                            what is done about messages that are gone, and their count
    stores                            opened stores, one per process and directory
    places, planner                   where a batch begins and ends, and its ranges, on the driver
    resuming, stream_planner          where a stream goes on, and how far it goes
    value_fields                      those columns where the user gives no schema
    bad_records                       where tasks send what they cannot decode
    surviving, task                   ranges, or what is left → Arrow batches, on executors
    key_read, pending                 the same of single messages, and of what waits
    view_columns, view_read           the same of whatever else a store holds
    intake, group_progress            the limits of a stream; the group that follows it
    reader, stream_reader             the two kinds of query
    stream_start                      everything checked before Spark asks for an offset
    sink_columns, send_batch          a DataFrame's columns → those of messages (pure)
    sink                              what is settled on the driver
    task_rows, identity               the rows of a task; what a repeated write is known by
    write_direct, write_staged        tasks append; tasks stage and the driver publishes
    writer                            which of the two
    datasource                        the façade that Spark talks to
    groups                            batch reads that move a group when they are done
    lag                               how far queries are behind, for people and Prometheus
    checkpoints                       the command `pyrocket checkpoint`
    java, doctor                      finding a Java; the command `pyrocket doctor`
    notebook                          a live view of a streaming DataFrame
"""

from pyspark_pyrocket.support import missing_pyspark

try:
    from pyspark_pyrocket.datasource import RocketDataSource as DefaultSource
except ImportError as error:
    # A stand-in that says which pyspark is needed: not a DataSource, because there is none.
    DefaultSource = missing_pyspark(error)  # type: ignore[assignment,misc]

__all__ = ["DefaultSource"]
