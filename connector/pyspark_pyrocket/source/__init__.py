"""Reads: the driver plans them, tasks execute them.

offsets, stream_offset      numbers per queue; the offset in a stream's checkpoint
planner, offset_range       tasks of topics and views; start and end offsets of a read
resume, data_loss           where a stream continues; handling of lost messages
stream_planner, admission   the offsets of a stream; limits of a micro-batch
partitions                  the work of a task, and how it is grouped
batch_reader, stream_reader the readers that Spark calls
task                        execution of a task; infer_schema samples messages
bad_records, group_follower messages that cannot be decoded; a group that follows a stream
"""
