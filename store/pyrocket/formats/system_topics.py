"""The system topics of RocketMQ, and ours.

Source: `TopicValidator` (5.x; 4.9 has them in `TopicConfigManager`, `ScheduleMessageService` and
`TransactionalMessageUtil`), `TimerMessageStore.TIMER_TOPIC`.
"""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Delayed messages; messages of level n are in queue n - 1."""

SCHEDULE_QUEUES = 18
"""Its number of queues in the topic table, independent of the number of levels."""

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Messages with a due time of their own, all in queue 0."""

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Half messages, all in queue 0."""

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Op messages: each lists resolved half messages."""

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The consumer group whose offsets show the progress in the half and op topics."""

DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Half messages that reached the maximum number of checks."""

SINK_TOPIC = "rmq_sys_pyrocket_sink"
"""Ours: one message for each published batch of a sink."""

POP_TOPIC = "rmq_sys_pyrocket_pop"
"""Ours: the messages that consumer groups have received and acked, one record for each change."""

DAMAGED_TOPIC = "rmq_sys_damaged"
"""Ours: placeholders that repair wrote over damaged bytes of unknown messages."""

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""The message trace."""

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
"""Topics that users can neither create nor send to, in addition to those with `SYSTEM_PREFIX`."""

SYSTEM_PREFIX = "rmq_sys_"

RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
"""Prefixes of a consumer group's name in the names of its retry and dead-letter topics."""

MADE_BY_BROKERS = frozenset(["BenchmarkTest", "CHECKPOINT_TOPIC", "DefaultCluster", TRACE_TOPIC])
"""Topics that a broker creates when it starts, and to which users may send. It also creates those
closed to senders, and topics named after itself and its cluster."""

REPLY_SUFFIX = "_REPLY_TOPIC"
"""Suffix of the cluster's name in the name of the topic for replies to requests."""


def retry_topic(group: str) -> str:
    """Return the name of a group's retry topic."""
    return RETRY_PREFIX + group


def retry_topics(group: str, topic: str) -> tuple[str, str, str]:
    """Return the topics that may contain a group's retries of a topic.

    RocketMQ 5 writes the retries of pop consumers to the second topic (version 1) or the third one
    (version 2).
    """
    name = retry_topic(group)
    return name, f"{name}_{topic}", f"{name}+{topic}"


def dead_letter_topic(group: str) -> str:
    """Return the name of a group's dead-letter topic."""
    return DLQ_PREFIX + group
