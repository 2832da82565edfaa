"""Push and pull consumers, whose groups share the queues by rebalance.

members      the live members of each group
queue_locks  the locks of orderly consumers
consumers    these parts, reads for pulls, commits, and messages that consumers send back

Source: RocketMQ's `ConsumerManager`, `RebalanceLockManager`, `PullMessageProcessor`.
"""
