"""Reads: planned on the driver, run by tasks.

offsets, stream_offset      numbers by queue; what Spark keeps of a stream
planner, offset_range       the queues, and where a read begins and ends in them
resume, data_loss           where a stream continues; handling of lost messages
stream_planner, admission   how far a micro-batch reads
partitions                  the work of a task, and how it is grouped
key_lookup, views           tasks that read single messages, or views
batch_reader, stream_reader, stream_start, source_creation   what Spark calls
task, tolerant_scan         what a task does; infer_schema reads a few messages
bad_records, group_follower messages that cannot be decoded; a group that follows a stream
"""
