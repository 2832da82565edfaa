"""RocketMQ's transactions: half messages, commit and rollback, checks of undecided messages.

A transactional message, file by file:

1. `TransactionProducer.send` (`producer`) calls `Transactions.send_half` (`transactions`), which
   appends a *half message* to RMQ_SYS_TRANS_HALF_TOPIC. Consumers do not see it; its properties
   keep the topic and queue it is meant for. Then the listener executes the local transaction.
2. COMMIT or ROLLBACK goes to `EndTransactionProcessor` (`end_transaction`). Under the write lock
   it finds the half message among the undecided ones (`half_messages`) and appends the message
   that consumers see and an *op message* that names the half message, both in one append. For a
   rollback it appends only the op message. All these records are built in `records`.
3. After UNKNOWN, or if the producer crashed, the message stays undecided. Every open producer runs
   the check service (`check_service`): it appends the half message again with its check counter
   raised, and asks a listener of the producer's group about it. The answer continues at 2. After
   15 checks or 72 hours the message goes to TRANS_CHECK_MAX_TIME_TOPIC.
4. Before the cleaner deletes log files, `bridge` appends their undecided half messages again.

The queues alone decide what is undecided, together with two cursors that move with the appends
(`half_messages`). So a crash at any point leaves a message either decided or undecided, and a
RocketMQ broker can continue on the same files. `bridge` holds what 2 to 4 share: the lock, the
undecided messages and the one append that changes them. `model` has the types that applications
use, `pyrocket.formats.half_message` the bytes.
"""
