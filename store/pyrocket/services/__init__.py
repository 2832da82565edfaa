"""Beside the log: what a store knows about itself. Siblings never import each other.

identity     uuid, broker name and sizes of a directory
topics       topics and their queue counts, persisted as RocketMQ does
epochs       where recoveries have cut the log
unique_ids   ids for new messages
groups       consumer groups' offsets
subscriptions   consumer groups and their settings
delay_offsets   how far delayed messages have been delivered
retention    which log files have to go
kept_retention   what the store says about that
routing      which queue each message goes to
"""
