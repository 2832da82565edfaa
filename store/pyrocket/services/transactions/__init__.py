"""RocketMQ's transactions: half messages, commit and rollback, checks of undecided messages.

A transactional message, file by file:

1. `Transactions.send_half` (`transactions`) appends a *half message* to RMQ_SYS_TRANS_HALF_TOPIC.
   Consumers do not see it; its properties name its real topic and queue. Then the producer's
   listener executes the local transaction.
2. `EndTransactionProcessor` (`end_transaction`) processes COMMIT and ROLLBACK. While holding the
   write lock, it finds the half message among the undecided messages (`half_messages`). For a
   commit, one append contains the message that consumers see and an *op message* that refers to the
   half message. For a rollback, the append contains only the op message. `records` builds all these
   records.
3. After UNKNOWN, or if the producer crashed, the message stays undecided. The check service
   (`check_service`) re-appends the half message with an incremented check counter and asks a
   producer of the group about it. The answer is processed as in 2.
   After 15 checks or 72 hours the message is moved to TRANS_CHECK_MAX_TIME_TOPIC.
4. Before the cleaner deletes log files, `bridge` re-appends their undecided half messages.

The queues and two cursors, which move with the appends, determine which messages are undecided
(`half_messages`). Therefore, after a crash at any point, a message is either decided or undecided,
and a RocketMQ broker can continue with the same files. `bridge` contains the parts that steps 2 to
4 share: the lock, the undecided messages, and the append that changes them. `model` has the types
that applications use, `pyrocket.formats.half_message` the bytes.
"""
