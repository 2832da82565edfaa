"""The results of a listener: `ConsumeResult`."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from pyrocket.base.arguments import check_numbers, check_whole
from pyrocket.base.config import MAX_DELAY_LEVELS
from pyrocket.errors import InvalidInputError
from pyrocket.values.message import StoredMessage


class ConsumeStatus(str, Enum):
    """The statuses of RocketMQ's `ConsumeConcurrentlyStatus` and `ConsumeOrderlyStatus`."""

    SUCCESS = "SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(frozen=True)
class ConsumeResult:
    """What a listener returns for a batch of messages.

    SUCCESS: the messages are consumed. RECONSUME_LATER: none of them is consumed, and all of them
    are sent back. SUSPEND_CURRENT_QUEUE_A_MOMENT: none of them is consumed, and an orderly consumer
    delivers them again after a pause. Orderly consumers treat RECONSUME_LATER like
    SUSPEND_CURRENT_QUEUE_A_MOMENT.

    >>> ConsumeResult.success_up_to(1).consumed(5)
    2

    Attributes:
        status: The status.
        ack_index: The index of the last consumed message in the batch if the status is SUCCESS;
            -1 if no message is consumed, None if all messages are. The messages after this index
            are treated as for RECONSUME_LATER. Source: `ConsumeConcurrentlyContext.setAckIndex`.
        delay_level: The delay level of messages that are sent back: -1 makes them dead letters at
            once; with 0, the delays of the group apply. An orderly consumer ignores it. Source:
            `ConsumeConcurrentlyContext.setDelayLevelWhenNextConsume`.
    """

    status: ConsumeStatus
    ack_index: int | None = None
    delay_level: int = 0

    SUCCESS: ClassVar["ConsumeResult"]
    RECONSUME_LATER: ClassVar["ConsumeResult"]
    SUSPEND_CURRENT_QUEUE_A_MOMENT: ClassVar["ConsumeResult"]

    @classmethod
    def success_up_to(cls, ack_index: int) -> "ConsumeResult":
        """Return a SUCCESS for the messages up to and including this index of the batch.

        Raises InvalidInputError (ACK_INDEX_ILLEGAL) if the index is less than -1.
        """
        check_numbers(ack_index=ack_index)
        if ack_index < -1:
            raise InvalidInputError(
                f"ack_index is {ack_index}.",
                remedy="Use the index of the last consumed message, or -1 if there is none.",
                code="ACK_INDEX_ILLEGAL",
            )
        return cls(ConsumeStatus.SUCCESS, ack_index)

    @classmethod
    def reconsume_at_level(cls, delay_level: int) -> "ConsumeResult":
        """Return a RECONSUME_LATER whose messages are delivered again after a delay level, such as
        3 for 10 s; with -1 they become dead letters at once.

        Raises OptionError unless the level is from -1 to 64. A level that the store does not have
        is its last level.
        """
        check_whole("delay_level", delay_level, -1, MAX_DELAY_LEVELS)
        return cls(ConsumeStatus.RECONSUME_LATER, delay_level=delay_level)

    def consumed(self, size: int) -> int:
        """Return how many messages of a batch of this size are consumed, counted from the first."""
        if self.status is not ConsumeStatus.SUCCESS:
            return 0
        return size if self.ack_index is None else min(self.ack_index + 1, size)


ConsumeResult.SUCCESS = ConsumeResult(ConsumeStatus.SUCCESS)
ConsumeResult.RECONSUME_LATER = ConsumeResult(ConsumeStatus.RECONSUME_LATER)
ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT = ConsumeResult(
    ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
)


Listener = Callable[[list[StoredMessage]], ConsumeResult]
"""Consumes a batch of messages; called by several threads at once unless the consumer is orderly.

An exception, and any other result, are treated as RECONSUME_LATER.
"""
