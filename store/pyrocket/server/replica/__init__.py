"""A replica of a broker: follows its primary, and serves reads.

link      receives the primary's log over `pyrocket.v1`, and acknowledges what is durable
broker    the store of a replica, for clients that read
server    the calls that read; all others are REPLICA_READ_ONLY
process   the process of a replica, from start to shutdown
promotion makes a replica a store of its own
"""
