"""RocketMQ's topics for its own use, and those that are ours.

Source: `TopicValidator` (5.x; 4.9 has them in `TopicConfigManager`, `ScheduleMessageService` and
`TransactionalMessageUtil`), `TimerMessageStore.TIMER_TOPIC`.
"""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Delayed messages; those of level n are in queue n - 1."""

SCHEDULE_QUEUES = 18
"""Its queues in the topic table, however many levels there are."""

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Messages with a due time of their own, all in queue 0."""

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Half messages, all in queue 0."""

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""What says that a half message is decided."""

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The consumer group whose offsets say how far half and op topic have been gone through."""

DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Half messages that were checked too often."""

SINK_TOPIC = "rmq_sys_pyrocket_sink"
"""Ours: one message for each batch that was published whole."""

DAMAGED_TOPIC = "rmq_sys_damaged"
"""Ours: what a repair has put over damaged bytes of the log of which no message is known."""

CLOSED_TO_SENDERS = frozenset(
    [
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        DISCARD_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TBW102",
    ]
)
"""Topics that users neither create nor send to, besides those that `SYSTEM_PREFIX` begins."""

SYSTEM_PREFIX = "rmq_sys_"

RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
"""Before a consumer group's name: what it is to be given again, and what it was given too often."""

MADE_BY_BROKERS = frozenset(
    [
        "BenchmarkTest",
        "CHECKPOINT_TOPIC",
        "DefaultCluster",
        "RMQ_SYS_TRACE_TOPIC",
    ]
)
"""Topics that a broker makes when it starts, besides those closed to senders, and those that have
its own name and its cluster's; users may send to them."""

REPLY_SUFFIX = "_REPLY_TOPIC"
"""Behind the cluster's name: what answers to requests go to."""
