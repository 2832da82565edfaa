"""POP consumption: the broker delivers messages, and records which are in flight or acked.

pop         `Pop`: receive, ack, change of invisible times, dead letters, sweep, snapshot
handles     what consumers do with messages in flight, by their handles
receive     receives from all queues of a topic; `draw` from one queue
sweep       moves messages with too many attempts to retry and dead-letter topics
offsets     committed offsets, in RocketMQ's file
recovery    snapshots, and recovery from snapshot and log
java_pops   takes over the messages in flight of a RocketMQ 5 broker
values      settings, arguments and results
group       the state of a group, and the states of all groups by name
queue       one queue of one group: its cursor and its messages in flight
in_flight   a compact table of messages in flight
events      changes of the state, and their records in the log
retries     copies of messages for retry and dead-letter topics
"""
