"""Writers, as Spark calls them: tasks stage or append rows, and the driver publishes them.

columns, kafka_rows         a DataFrame's columns → those of messages; null bodies, any keys
prepare, sink_checkpoint    preparation on the driver, and what it saves in a query's checkpoint
task_rows, batch_identity   the rows of one task; how a repeated write is recognised
direct_writer               at-least-once: tasks append
staged_writer               exactly-once: tasks stage, and the driver publishes
writer                      the writer for the option `delivery`
"""
