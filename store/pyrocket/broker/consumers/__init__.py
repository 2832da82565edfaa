"""Push and pull consumers, whose groups share the queues by rebalance.

members      the live members of each group
queue_locks  the locks of orderly consumers
pulls        reads messages for pulls
consumers    these parts, commits, and messages that consumers send back

Source: RocketMQ's `ConsumerManager`, `RebalanceLockManager`, `PullMessageProcessor`.
"""
