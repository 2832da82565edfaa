"""A store's metadata: its identity, its topics and its consumer groups.

json_table        RocketMQ's `config/*.json`: a table and its backup
topics            topics and their queue counts, ids and permissions
groups            consumer groups: settings and committed offsets
group_starts      where groups start in queues for which they have committed no offset
service_cursors   the cursors of the delay and transaction services
delay_levels      derives the delay levels of a store that only a broker has written
retention         how long messages are kept
identity          the store's id, its broker name and the sizes of its files
store_sizes       derives the file sizes that are missing in the identity
epochs            the queue ends after each recovery that may have truncated the log
queue_ends        the end offset of each queue at the last checkpoint
broker_file       the process that serves the store, and its addresses
"""
