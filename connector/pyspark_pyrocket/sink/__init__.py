"""Writes, as Spark asks for them: tasks stage or append, and the driver publishes.

sink_columns, send_batch   a DataFrame's columns → those of messages
sink, sink_checkpoint      what is settled on the driver, and kept in a query's checkpoint
task_rows, identity        the rows of a task; what a repeated write is known by
write_direct               tasks append
write_staged               tasks stage and the driver publishes
writer                     which of the two
"""
