"""POP consumption: the broker hands out messages, and keeps which are in flight and acked.

pop         `Pop`: receive, ack, change of invisible times, dead letters, sweep, snapshot
receive     what a receive takes from all queues of a topic; `draw` from one of them
sweep       moves messages that were delivered too often
offsets     committed offsets, in RocketMQ's file
recovery    snapshots
java_pops   messages that a RocketMQ 5 broker has handed out
lag         how far a group is
values      settings, arguments and results
states      the states of all groups, by name; `group` is one of them
queue       one queue of one group: its cursor, what is in flight and what is acked
in_flight   a compact table of messages in flight
events      changes of the state, and their records in the log
retries     copies of messages for retry and dead-letter topics
holds       parked long polls, woken by queue
"""
