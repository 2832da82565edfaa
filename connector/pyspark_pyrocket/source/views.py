"""Batch reads of views: pending messages, the log, retries, groups and topics."""

from pyrocket import PendingRange

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import WAITING
from pyspark_pyrocket.source.partitions import ReadPartition, ViewParts, group_by_weight
from pyspark_pyrocket.source.planner import topics_to_read
from pyspark_pyrocket.transport.interface import MessageSource, Part

TASK_BYTES = 64 * 1024 * 1024
"""About how much of the log one task reads; a file of the log is not divided."""

TASK_MESSAGES = 32_768
"""Maximum pending messages of one task."""


def view_partitions(source: MessageSource, options: ReadOptions) -> list[ReadPartition]:
    """Return the tasks that read a view as it is now."""
    is_pending = options.view in WAITING
    # Messages for other topics wait in the same queues: tasks leave them out.
    topics = topics_to_read(source, options) if is_pending else options.subscription.topics
    parts = source.plan_view(
        options.view,
        topics=topics,
        group=options.progress.group,
        skips_damage=options.skips_damage,
    )
    groups = group_by_weight(parts, [1], lambda part: [_share_of_task(part)])
    kept = tuple(topics) if is_pending else ()
    return [ReadPartition(source.target, ViewParts(group, kept)) for group in groups]


def _share_of_task(part: Part) -> float:
    if isinstance(part, PendingRange):
        return part.messages / TASK_MESSAGES
    return part.weight / TASK_BYTES
