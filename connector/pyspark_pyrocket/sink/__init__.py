"""Writers, as Spark calls them: tasks stage or append rows, and the driver publishes them.

columns, kafka_rows         a DataFrame's columns → those of messages; null bodies, binary keys
prepare, sink_checkpoint    preparation on the driver; the store's id in a query's checkpoint
task_rows, batch_identity   writing the rows of one task; recognising a repeated write
staged_writer               exactly-once: tasks stage, and the driver publishes
writer                      the writer for `delivery`; at-least-once: tasks append
"""
