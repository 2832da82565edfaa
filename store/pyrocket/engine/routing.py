"""Chooses the queue of each message of a batch.

A row's queue id has priority, then its sharding key, by RocketMQ's `SelectMessageQueueByHash`; the
other rows are spread evenly over the write queues, in one run per queue, so that the messages of a
queue are adjacent in the log and are read sequentially.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.errors import MessageError
from pyrocket.formats.hashes import queues_for_keys
from pyrocket.formats.send_columns import SendColumns

QueueIds = npt.NDArray[np.int32]


def route(columns: SendColumns, topic: str, queues: int, first_queue: int) -> QueueIds:
    """Return each row's queue id. Raises MessageError (QUEUE_NOT_FOUND) for an invalid one."""
    count = len(columns)
    chosen = np.full(count, -1, np.int32)
    if columns.sharding_key is not None:
        has_key = columns.sharding_key.is_valid().to_numpy(zero_copy_only=False)
        chosen[has_key] = queues_for_keys(columns.sharding_key, queues)[has_key]
    if columns.queue_id is not None:
        given = columns.queue_id.is_valid().to_numpy(zero_copy_only=False)
        ids = pc.fill_null(columns.queue_id, 0).to_numpy()
        _check_ids(ids, topic, queues)
        chosen[given] = ids[given]
    free = np.flatnonzero(chosen < 0)
    if len(free):
        steps = np.arange(len(free), dtype=np.int64) * min(queues, len(free)) // len(free)
        chosen[free] = (first_queue + steps) % queues
    return chosen


def order_by_queue(queue_ids: QueueIds) -> pa.Array | None:
    """Return the order that groups the rows by queue; None if they are grouped already."""
    runs = np.count_nonzero(np.diff(queue_ids)) + 1
    if runs <= len(np.unique(queue_ids)):
        return None
    return pa.array(np.argsort(queue_ids, kind="stable"))


def _check_ids(ids: npt.NDArray[np.int64], topic: str, queues: int) -> None:
    bad = (ids < 0) | (ids >= queues)
    if bad.any():
        row = int(np.argmax(bad))
        raise MessageError(
            f"row {row} names queue {ids[row]}; topic {topic!r} has the write queues 0 to"
            f" {queues - 1}.",
            remedy="Use one of these, or null to have a queue chosen.",
            code="QUEUE_NOT_FOUND",
        )
