"""Data that can be rebuilt from the log: ConsumeQueues (`queues`) and index files (`keys`)."""
