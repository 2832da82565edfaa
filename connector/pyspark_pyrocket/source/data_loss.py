"""Messages that are gone before they were read: what `onDataLoss` makes of them, and their count.

What cannot be read right now (a lock, a recovery) is another kind of error, and never counted here.
"""

from dataclasses import dataclass, field

from pyrocket import QueueOffsets
from pyrocket.errors import DataLossError, OffsetOutOfRangeError

from pyspark_pyrocket.options.policies import TO_EARLIEST, TO_LATEST, LossPolicy
from pyspark_pyrocket.options.positions import QueueNumbers
from pyspark_pyrocket.worker import LOG

GO_ON = (
    "To go on without what is gone set the option onDataLoss to skip, earliest or latest;"
    " its row in the option table says where each goes on."
)


@dataclass(frozen=True)
class Gap:
    """Why a queue cannot be read on from where a query is.

    error: what `fail` raises.
    unread: the first offset, counted as the queue counts now, that the query has not read.
    resume: where `skip` goes on.
    """

    error: DataLossError
    unread: int
    resume: int


@dataclass
class Losses:
    """Counts the messages that a query has lost, by topic and queue, and warns of each loss.

    counts: topic → queue → messages since this was made.
    quiet: whether there are no warnings.
    """

    policy: LossPolicy
    quiet: bool = False
    counts: QueueNumbers = field(default_factory=dict)
    said: set[str] = field(default_factory=set)

    def settle(self, topic: str, queue_id: int, gap: Gap, limits: QueueOffsets) -> int:
        """Return where the queue goes on, or raise what is wrong, as the policy says."""
        if self.policy.fails:
            raise gap.error
        goes_on = {TO_EARLIEST: limits.minimum, TO_LATEST: limits.maximum}
        begin = goes_on.get(self.policy.policy, gap.resume)
        self.note(topic, queue_id, max(0, begin - gap.unread), f"goes on at {begin}", gap.error)
        return begin

    def note(
        self, topic: str, queue_id: int, lost: int, outcome: str, error: DataLossError
    ) -> None:
        """Count messages of a queue as lost, and warn."""
        queues = self.counts.setdefault(topic, {})
        queues[queue_id] = queues.get(queue_id, 0) + lost
        if self.quiet:
            return
        LOG.warning(
            "topic %r queue %d has lost %d messages and, by onDataLoss=%s, %s: [%s] %s",
            topic,
            queue_id,
            lost,
            self.policy.policy,
            outcome,
            error.code,
            error.message,
        )

    def take(self) -> QueueNumbers:
        """Return the counts, and begin to count anew."""
        counts, self.counts = self.counts, {}
        return counts

    def say_once(self, text: str) -> None:
        """Warn of something that is so until it changes."""
        if text not in self.said:
            self.said.add(text)
            LOG.warning(text)


def out_of_range(where: str, offset: int, limits: QueueOffsets) -> Gap | None:
    """Return what is wrong with reading a queue from, or up to, `offset`, or None."""
    if limits.minimum <= offset <= limits.maximum:
        return None
    error = OffsetOutOfRangeError(
        f"{where}: offset {offset} is outside {limits.minimum} to {limits.maximum}, "
        "which is what the queue has.",
        remedy=f"Messages below were deleted, those beyond do not exist yet. {GO_ON}",
    )
    if offset < limits.minimum:
        return Gap(error, unread=offset, resume=limits.minimum)
    return Gap(error, unread=limits.maximum, resume=limits.maximum)
