"""Messages that were lost before they were read: handling by `onDataLoss`, and their number.

Messages that cannot be read at the moment (because of a lock or a recovery) cause other errors and
do not count as lost.
"""

from dataclasses import dataclass, field

from pyrocket import MessageQueue, QueueOffsets
from pyrocket.base.arguments import counted
from pyrocket.errors import DataLossError, OffsetOutOfRangeError

from pyspark_pyrocket.options.policies import TO_EARLIEST, TO_LATEST, LossPolicy
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.worker import LOG

HOW_TO_CONTINUE = (
    "To continue without the lost messages, set the option onDataLoss to skip, earliest or latest;"
    " the option table explains where each of them continues."
)


@dataclass(frozen=True)
class Gap:
    """Why a query cannot continue to read a queue from its position.

    Attributes:
        error: What `fail` raises.
        unread: The first offset, in the queue's current numbering, that the query has not read.
        resume: The offset at which `skip` continues.
    """

    error: DataLossError
    unread: int
    resume: int


@dataclass
class Losses:
    """Counts the messages that a query has lost in each queue, and warns of each loss.

    Attributes:
        policy: The value of `onDataLoss`.
        quiet: Suppresses warnings.
        counts: The number of messages lost in each queue since the last `take`.
        logged: The warnings that `warn_once` has logged.
    """

    policy: LossPolicy
    quiet: bool = False
    counts: Offsets = field(default_factory=Offsets)
    logged: set[str] = field(default_factory=set)

    def settle(self, queue: MessageQueue, gap: Gap, limits: QueueOffsets) -> int:
        """Return the offset at which the queue continues, or raise the gap's error, by policy."""
        if self.policy.fails:
            raise gap.error
        policies = {TO_EARLIEST: limits.minimum, TO_LATEST: limits.maximum}
        begin = policies.get(self.policy.policy, gap.resume)
        self.report(queue, max(0, begin - gap.unread), f"continues at {begin}", gap.error)
        return begin

    def report(self, queue: MessageQueue, lost: int, outcome: str, error: DataLossError) -> None:
        """Count messages of a queue as lost, and warn."""
        self.counts[queue] = self.counts.get(queue, 0) + lost
        if self.quiet:
            return
        LOG.warning(
            "topic %r queue %d has lost %s; with onDataLoss=%s the query %s: [%s] %s",
            queue.topic,
            queue.queue_id,
            counted(lost, "message"),
            self.policy.policy,
            outcome,
            error.code,
            error.message,
        )

    def take(self) -> Offsets:
        """Return the counts, and reset them."""
        counts, self.counts = self.counts, Offsets()
        return counts

    def warn_once(self, text: str) -> None:
        """Warn about a lasting condition; the same warning is logged only once."""
        if text not in self.logged:
            self.logged.add(text)
            LOG.warning(text)


def out_of_range(where: str, offset: int, limits: QueueOffsets) -> Gap | None:
    """Return the gap if a read starts or ends at an `offset` outside the limits, otherwise None."""
    if limits.minimum <= offset <= limits.maximum:
        return None
    error = OffsetOutOfRangeError(
        f"{where}: offset {offset} is outside {limits.minimum} to {limits.maximum}, "
        "the queue's range.",
        remedy="Messages before the range were deleted; those after it do not exist yet. "
        f"{HOW_TO_CONTINUE}",
    )
    if offset < limits.minimum:
        return Gap(error, unread=offset, resume=limits.minimum)
    return Gap(error, unread=limits.maximum, resume=limits.maximum)
