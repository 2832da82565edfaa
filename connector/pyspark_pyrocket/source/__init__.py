"""Reads: the driver plans them, tasks execute them.

offsets, stream_offset      numbers by queue; what Spark keeps of a stream
planner, offset_range       topics, queues and views; where a read begins and ends in queues
resume, data_loss           where a stream continues; handling of lost messages
stream_planner, admission   how far a micro-batch reads
partitions                  the work of a task, and how it is grouped
key_lookup                  tasks that read single messages
batch_reader, stream_reader what Spark calls
task                        what a task does; infer_schema reads a few messages
bad_records, group_follower messages that cannot be decoded; a group that follows a stream
"""
