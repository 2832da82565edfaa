"""The broker serves one store to other machines. This package has plain methods; `rpc` serves them
over gRPC.

source        the reading side; each method takes all queues at once
sink          the writing side
append_queue  the thread that appends the records of all clients
consumers     groups of push and pull consumers, which rebalance
admin         topics, groups and retention
broker        the store with these parts and its services
settings      the settings, from flags, environment and files
access        users and their rights
files         configuration files that are reloaded when they change
running       the broker's state: offsets of the log, write errors, a full disk
"""
