"""RocketMQ's transactions: half messages, what decides them, and asking about undecided ones.

words      what producers and listeners say to each other
pieces     messages of a queue as raw records
undecided  which half messages are undecided: queues and cursors, followed as they grow
records    the records that a commit, a rollback, a check or a discard appends
ledger     what all who change half messages of one store share
ending     commit and rollback, RocketMQ's END_TRANSACTION
checking   asking producers about half messages that stay undecided
keeping    undecided half messages of log files that go
producer   `TransactionProducer`
facade     `Transactions`: all of it for one store
"""
