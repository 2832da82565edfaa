"""What a store holds beside messages: its identity, its topics and consumer groups.

json_table       RocketMQ's `config/*.json`: a table and its backup
topics           topics and their queue counts, ids and permissions
groups           consumer groups: settings and committed offsets
service_cursors  the cursors of the delay and transaction services
delay_levels     the delay levels of a store that only a broker has written
retention        how long messages are kept
identity         the store's id, its broker name and the sizes of its files
store_sizes      file sizes, where the identity does not name them
epochs           where recoveries truncated the log
queue_ends       where the queues ended at the last checkpoint
"""
