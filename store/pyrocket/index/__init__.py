"""Everything here can be rebuilt from the log: ConsumeQueues (`queues`), index files (`keys`)."""
